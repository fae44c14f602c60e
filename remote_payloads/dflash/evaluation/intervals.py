"""Student-t intervals over prompt means: blocks of one prompt are alike, so prompts are what is sampled.

Blocks of prompts whose levels lie evenly around a mean are covered as promised (95 % at 3, 8 and 20 prompts).
Where levels are strongly skewed (geometric streaks, their chance uniform in 0.3..0.9), three prompts cover some
86 %, eight 89, twenty 93: a few prompts cannot show a long tail that none of them is in. No t interval escapes
that; differences between two checkpoints, paired by prompt, are far less skewed.

Standard library only (no scipy on a host): the t distribution by the regularized incomplete beta function.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import fmean, stdev


def t_interval(prompt_means: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """The interval for the mean over prompts; None below two of them (nothing is known of the spread)."""
    n = len(prompt_means)
    if n < 2:
        return None
    middle = fmean(prompt_means)
    half = t_quantile(0.5 + confidence / 2, n - 1) * stdev(prompt_means) / math.sqrt(n)
    return middle - half, middle + half


@cache
def t_quantile(p: float, degrees: int) -> float:
    """The p-quantile (0.5 <= p < 1) of Student's t, by bisection of its distribution function."""
    low, high = 0.0, 1.0
    while t_cdf(high, degrees) < p:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, degrees) < p else (low, middle)
    return (low + high) / 2


def t_cdf(t: float, degrees: int) -> float:
    """P(T <= t) for t >= 0."""
    return 1.0 - 0.5 * _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularized incomplete beta by its continued fraction (Lentz)."""
    if x <= 0 or x >= 1:
        return min(1.0, max(0.0, x))
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _incomplete_beta(b, a, 1.0 - x)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    # The modified Lentz method for 1 / (1 + d1 / (1 + d2 / (1 + ...))).
    tiny = 1e-300
    c, d = 1.0, 1.0 / ((1.0 - (a + b) * x / (a + 1)) or tiny)
    value = d
    for m in range(1, 300):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for numerator in (even, odd):
            d = 1.0 / ((1.0 + numerator * d) or tiny)
            c = (1.0 + numerator / c) or tiny
            value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return front * value / a
