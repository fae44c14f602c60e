"""The quantiles of Student's t are exact, and an interval is the one that textbooks give."""

from __future__ import annotations

import pytest

from hostkit.evals.t_interval import interval, quantile


@pytest.mark.parametrize(
    ("degrees", "t"),
    [(1, 12.7062047), (2, 4.3026527), (3, 3.1824463), (10, 2.2281389), (30, 2.0422725), (120, 1.9799304)],
)  # fmt: skip
def test_a_quantile_is_that_of_published_tables_at_every_number_of_degrees(degrees: int, t: float) -> None:
    assert quantile(degrees) == pytest.approx(t, abs=5e-8)


def test_an_interval_of_three_means() -> None:
    low, high = interval([1.0, 2.0, 3.0]) or (0.0, 0.0)
    assert (low, high) == pytest.approx((2 - 4.3026527 / 3**0.5, 2 + 4.3026527 / 3**0.5))


def test_one_mean_alone_has_no_interval() -> None:
    assert interval([1.0]) is None
