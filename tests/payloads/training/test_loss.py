"""The chunked loss equals the plain one, in value and in gradient, for any chunk."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dflash.training.learning_rate import learning_rate
from dflash.training.loss import block_loss


@pytest.fixture
def parts() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    hidden = torch.randn(2, 3, 4, 16, generator=g, dtype=torch.float64)
    head = torch.randn(50, 16, generator=g, dtype=torch.float64)
    labels = torch.randint(0, 50, (2, 3, 4), generator=g)
    scored = torch.rand(2, 3, 4, generator=g) > 0.3
    return hidden, head, labels, scored, torch.tensor([1.0, 0.8, 0.6, 0.4])


def plain(hidden: Tensor, head: Tensor, labels: Tensor, scored: Tensor, weights: Tensor) -> Tensor:
    each = F.cross_entropy((hidden @ head.T).flatten(0, 2), labels.flatten(), reduction="none").view_as(
        labels
    )
    return (each * weights * scored).sum()


@pytest.mark.parametrize("share", [0.0, 0.2, 0.7, 1.0])
@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_value_and_gradient_equal_plain_cross_entropy(parts: tuple, rows: int, share: float) -> None:
    hidden, head, labels, _, weights = parts
    scored = torch.rand(labels.shape, generator=torch.Generator().manual_seed(1)) < share
    ours, theirs = hidden.clone().requires_grad_(), hidden.clone().requires_grad_()
    total, hits = block_loss(ours, head, labels, scored, weights=weights, rows_at_once=rows)
    wanted = plain(theirs, head, labels, scored, weights)
    (total * 3).backward()
    (wanted * 3).backward()
    assert total.item() == pytest.approx(wanted.item(), rel=1e-6)
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-6)
    assert torch.equal(hits, ((hidden @ head.T).argmax(-1) == labels) & scored)


def test_slots_that_are_not_scored_have_no_gradient(parts: tuple) -> None:
    hidden, head, labels, scored, weights = parts
    hidden = hidden.requires_grad_()
    block_loss(hidden, head, labels, scored, weights=weights)[0].backward()
    assert not hidden.grad[~scored].any()
    assert hidden.grad[scored].any(-1).all()


def test_the_rate_rises_then_falls_to_nothing() -> None:
    rates = [learning_rate(s, 100, 1.0, warmup=0.1) for s in range(1, 101)]
    assert rates[:10] == pytest.approx([0.1 * s for s in range(1, 11)])
    assert rates[9:] == sorted(rates[9:], reverse=True)
    assert rates[-1] == pytest.approx(0.0)
