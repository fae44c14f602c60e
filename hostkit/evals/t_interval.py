"""Two-sided 95 % Student t intervals over a few means.

Source of the quantiles: any table of the t distribution at 0.975; between rows the smaller degree of
freedom is taken, so an interval is never narrower than it should be. A percentile bootstrap over three
means covers about 70 %, not 95: that is why it is not used here.
"""

from __future__ import annotations

import statistics

_T975 = {
    1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228,
    11: 2.201, 12: 2.179, 13: 2.160, 14: 2.145, 15: 2.131, 16: 2.120, 17: 2.110, 18: 2.101, 19: 2.093, 20: 2.086,
    21: 2.080, 22: 2.074, 23: 2.069, 24: 2.064, 25: 2.060, 26: 2.056, 27: 2.052, 28: 2.048, 29: 2.045, 30: 2.042,
    40: 2.021, 60: 2.000, 120: 1.980,
}  # fmt: skip


def quantile(degrees: int) -> float:
    """Return t at 0.975 for so many degrees of freedom (at least 1)."""
    return _T975[max(row for row in _T975 if row <= degrees)]


def interval(values: list[float]) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean of `values`; None for fewer than two."""
    if len(values) < 2:
        return None
    mean = statistics.fmean(values)
    half = quantile(len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return mean - half, mean + half
