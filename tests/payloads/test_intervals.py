"""The t interval holds what it promises on clustered blocks."""

from __future__ import annotations

import random

import pytest

from intervals import t_cdf, t_interval, t_quantile

TABLE = {1: 12.7062, 2: 4.3027, 3: 3.1824, 5: 2.5706, 9: 2.2622, 19: 2.0930, 30: 2.0423, 120: 1.9799}


@pytest.mark.parametrize("degrees", TABLE)
def test_quantiles_are_those_of_the_printed_table(degrees: int) -> None:
    assert t_quantile(0.975, degrees) == pytest.approx(TABLE[degrees], abs=6e-5)


def test_half_lies_below_zero() -> None:
    assert t_cdf(0.0, 4) == pytest.approx(0.5)


def test_one_prompt_says_nothing_about_the_spread() -> None:
    assert t_interval([3.0]) is None
    assert t_interval([3.0, 3.0]) == (3.0, 3.0)


@pytest.mark.parametrize("prompts", [3, 8, 20])
def test_intervals_cover_the_truth_with_clustered_blocks(prompts: int) -> None:
    """Prompts differ, and blocks of a prompt are alike: lengths 0..15 with a spread of 4 around its level."""
    drawn = random.Random(prompts)
    levels = [drawn.gauss(6.0, 1.5) for _ in range(2000)]
    truth = sum(length(drawn, level) for level in levels for _ in range(30)) / (30 * len(levels))
    trials, covered = 1500, 0
    for _ in range(trials):
        means = [
            sum(length(drawn, level) for _ in range(12)) / 12 for level in drawn.choices(levels, k=prompts)
        ]
        low, high = t_interval(means) or (0, 0)
        covered += low <= truth <= high
    assert covered / trials >= 0.93


def length(drawn: random.Random, level: float) -> int:
    return min(15, max(0, round(drawn.gauss(level, 4.0))))
