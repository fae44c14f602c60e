"""The t interval holds what it promises on clustered blocks."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from dflash.evaluation.intervals import t_cdf, t_interval, t_quantile

TABLE = {1: 12.7062, 2: 4.3027, 3: 3.1824, 5: 2.5706, 9: 2.2622, 19: 2.0930, 30: 2.0423, 120: 1.9799}


@pytest.mark.parametrize("degrees", TABLE)
def test_quantiles_are_those_of_the_printed_table(degrees: int) -> None:
    assert t_quantile(0.975, degrees) == pytest.approx(TABLE[degrees], abs=6e-5)


def test_half_lies_below_zero() -> None:
    assert t_cdf(0.0, 4) == pytest.approx(0.5)


def test_one_prompt_says_nothing_about_the_spread() -> None:
    assert t_interval([3.0]) is None
    assert t_interval([3.0, 3.0]) == (3.0, 3.0)


Level = Callable[[random.Random], float]
Length = Callable[[random.Random, float], int]


def coverage(prompts: int, level: Level, length: Length, blocks: int = 12, trials: int = 4000) -> float:
    """Share of intervals that hold the mean over all prompts; blocks of a prompt share its level."""
    drawn = random.Random(prompts)
    levels = [level(drawn) for _ in range(4000)]
    truth = sum(length(drawn, at) for at in levels for _ in range(30)) / (30 * len(levels))
    covered = 0
    for _ in range(trials):
        chosen = drawn.choices(levels, k=prompts)
        low, high = t_interval([sum(length(drawn, at) for _ in range(blocks)) / blocks for at in chosen]) or (
            0,
            0,
        )
        covered += low <= truth <= high
    return covered / trials


def around(drawn: random.Random, level: float) -> int:
    return min(15, max(0, round(drawn.gauss(level, 4.0))))


def geometric(drawn: random.Random, chance: float) -> int:
    return next((n for n in range(15) if drawn.random() >= chance), 15)


@pytest.mark.parametrize("prompts", [3, 8, 20])
def test_intervals_cover_the_truth_with_clustered_blocks(prompts: int) -> None:
    """Prompts differ, and blocks of a prompt are alike: lengths 0..15 with a spread of 4 around its level."""
    assert coverage(prompts, lambda drawn: drawn.gauss(6.0, 1.5), around) >= 0.93


@pytest.mark.parametrize(("prompts", "least", "most"), [(3, 0.83, 0.91), (8, 0.87, 0.94), (20, 0.91, 0.96)])
def test_strongly_skewed_levels_are_covered_as_far_as_is_written(
    prompts: int, least: float, most: float
) -> None:
    """No t interval does better on so few prompts; README and intervals.py give these figures."""
    assert least <= coverage(prompts, lambda drawn: drawn.uniform(0.3, 0.9), geometric, trials=1500) <= most
