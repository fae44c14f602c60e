"""Sampled text follows the model's own distribution, at any vocabulary size and to its last id."""

from __future__ import annotations

import pytest
import torch

from dflash.training.sampling import draw

DRAWS = 20_000


def frequencies(row: torch.Tensor, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    found = draw(row.expand(DRAWS, -1), generator)
    return torch.bincount(found[:, 0], minlength=len(row)) / DRAWS


@pytest.mark.parametrize("size", [1, 2, 255, 256, 257, 1000])
def test_ids_come_as_often_as_they_are_probable(size: int) -> None:
    row = torch.rand(size, generator=torch.Generator().manual_seed(size)) ** 4
    row[size // 2 + 1 :] *= row[size // 2 + 1 :] > 0.5  # many zeros, also at the end
    row /= row.sum()
    spread = (row * (1 - row) / DRAWS).sqrt()
    found = frequencies(row)
    assert bool(((found - row).abs() <= 5 * spread + 1e-6).all())
    assert not bool(found[row == 0].any())


@pytest.mark.parametrize("at", [0, 255, 256, 511, 512, 999])
def test_a_certain_id_is_always_drawn(at: int) -> None:
    row = torch.zeros(1000)
    row[at] = 1.0
    assert frequencies(row)[at] == 1.0


def test_rows_do_not_mix_and_a_seed_decides_them() -> None:
    rows = torch.eye(700)[[3, 300, 699, 0]]
    assert draw(rows, torch.Generator().manual_seed(1))[:, 0].tolist() == [3, 300, 699, 0]
    flat = torch.full((50, 700), 1 / 700)
    one, two, three = (draw(flat, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, three)


def test_a_point_at_the_far_end_still_falls_on_an_id_that_has_a_probability(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = torch.zeros(1, 1000)
    row[0, :300] = 1 / 300
    monkeypatch.setattr(torch, "rand", lambda *shape, **_: torch.ones(1, 1, dtype=torch.float64))
    assert draw(row, torch.Generator())[0, 0] == 299
