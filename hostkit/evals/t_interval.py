"""Two-sided 95 % Student t intervals over a few means.

A percentile bootstrap over three means covers about 70 %, not 95: that is why it is not used here.
"""

from __future__ import annotations

import math
import statistics
from functools import cache


@cache
def quantile(degrees: int) -> float:
    """Return t at 0.975 for so many degrees of freedom (at least 1), to ten digits."""
    low, high = 0.0, 13.0  # of one degree it is 12.706, and the more degrees the less
    while high - low > 1e-11:
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < 0.95 else (low, middle)
    return high


def _within(t: float, degrees: int) -> float:
    """Return P(-t <= T <= t); Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(degrees))
    cosine, odd = math.cos(angle), degrees % 2
    term = cosine if odd else 1.0
    total = 0.0
    for k in range(1 + odd, degrees, 2):
        total += term
        term *= cosine**2 * k / (k + 1)
    total *= math.sin(angle)
    return (angle + total) * 2 / math.pi if odd else total


def interval(values: list[float]) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean of `values`; None for fewer than two."""
    if len(values) < 2:
        return None
    mean = statistics.fmean(values)
    half = quantile(len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return mean - half, mean + half
