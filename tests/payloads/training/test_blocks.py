"""Training blocks: anchors lie in the response, labels are of the same position, weights as published."""

from __future__ import annotations

import math

import pytest
import torch

from dflash.data.samples import Sample
from dflash.data.seeds import DataOrder, generator
from dflash.training.blocks import default_gamma, loss_weights, make_blocks


def sample(length: int, first: int, last: int | None = None) -> Sample:
    supervised = [first <= t < (last or length) for t in range(length)]
    return Sample("s", [100 + t for t in range(length)], supervised)


def test_anchors_are_supervised_and_followed_by_a_supervised_token() -> None:
    gapped = Sample("s", list(range(10)), [False, True, False, True, True, True, False, True, False, True])
    assert gapped.candidates() == [3, 4]


def test_slot_j_is_labelled_with_the_token_at_anchor_plus_j() -> None:
    blocks = make_blocks([sample(40, 10)], 6, 5, generator(0))
    for anchor, token, labels, scored in zip(
        blocks.anchors[0].tolist(),
        blocks.anchor_tokens()[0].tolist(),
        blocks.labels[0],
        blocks.scored[0],
        strict=True,
    ):
        assert token == 100 + anchor
        for j in range(1, 5):
            inside = anchor + j < 40
            assert bool(scored[j - 1]) is inside
            if inside:
                assert labels[j - 1] == 100 + anchor + j


def test_slots_past_the_response_are_not_scored_and_the_block_stays() -> None:
    blocks = make_blocks([sample(30, 10, last=14)], 8, 6, generator(0))
    assert blocks.valid[0].tolist() == [True] * 3 + [False] * 5
    assert blocks.anchors[0, :3].tolist() == [10, 11, 12]
    assert blocks.scored[0, :3].sum(-1).tolist() == [3, 2, 1]
    assert not blocks.scored[0, 3:].any()


def test_each_sample_gets_its_own_anchors() -> None:
    blocks = make_blocks([sample(12, 2), sample(200, 5)], 32, 4, generator(1))
    assert blocks.valid.sum(-1).tolist() == [9, 32]
    assert blocks.anchors[1].tolist() == sorted(set(blocks.anchors[1].tolist()))


@pytest.mark.parametrize(("block", "gamma"), [(16, 7), (10, 5), (8, 4)])
def test_weights_decay_as_published_and_the_anchor_has_none(block: int, gamma: float) -> None:
    assert default_gamma(block) == gamma
    weights = loss_weights(block, gamma)
    assert weights[:2] == [0.0, 1.0]
    assert weights[-1] == pytest.approx(math.exp(-(block - 2) / gamma))


def test_every_epoch_visits_every_sample_in_another_order() -> None:
    order = DataOrder(50, seed=3)
    first, second = [order.at(i) for i in range(50)], [order.at(i) for i in range(50, 100)]
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    assert [DataOrder(50, seed=3).at(i) for i in (99, 3, 57)] == [second[49], first[3], second[7]]


def test_padding_is_never_an_anchor_or_a_label() -> None:
    blocks = make_blocks([sample(12, 2), sample(40, 5)], 16, 8, generator(2), pad=7)
    assert (blocks.ids[0, 12:] == 7).all()
    assert not (blocks.labels[0][blocks.scored[0]] == 7).any()
    assert torch.equal(blocks.scored & ~blocks.valid[..., None], torch.zeros_like(blocks.scored))
