"""How long a staging takes is estimated from one that was measured, or not at all; and how fast one goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hostkit.checkpoints import Contents
from hostkit.staging.models import StagePlan
from hostkit.staging.stage import Staged
from hostkit.staging.timing import ROUTES, Pace, RouteRates

MIB = 1 << 20


def plan(**more: Any) -> StagePlan:
    base: dict[str, Any] = {
        "run": "drafter",
        "step": 1,
        "source": "ct200",
        "source_path": "/c",
        "destination": "ct129",
        "folder": "/s",
        "name": "n",
        "entry": "c.pt",
        "format": "torch-zip",
        "bytes": 100 * MIB,
        "contents": Contents(path="/c", complete=True),
        "route": ("pve", "ct200"),
    }
    return StagePlan(**(base | more))


def staged(**more: Any) -> Staged:
    base: dict[str, Any] = {"path": "/s/c.pt", "host": "ct129", "sha256": "0", "bytes": 50 * MIB, "step": 1}
    return Staged(**(base | {"route": (), "method": "full", "seconds": 10.0} | more))


@pytest.fixture
def rates(tmp_path: Path) -> RouteRates:
    return RouteRates(tmp_path / "rates.json")


def test_the_last_one_over_the_same_route_tells_it(rates: RouteRates) -> None:
    rates.remember(plan(), staged(seconds=99.0))
    rates.remember(plan(), staged())
    rates.remember(plan(route=("ct200",)), staged(seconds=1.0))
    expected = rates.expect(plan())
    assert expected.seconds == 20.0
    assert expected.words.startswith("about 20 s (50.0 MiB came over this route in 10 s, 20")


@pytest.mark.parametrize(
    "other",
    [
        {"route": ("ct200",)},
        {"folder": "/other"},
        {"destination": "workspace"},
        {"source": "other"},
        {"by": "push"},
        {"via": "stream"},
        {"rate": MIB},
    ],
)
def test_no_time_is_made_up_from_another_route_or_from_one_that_was_slowed(
    rates: RouteRates, other: dict[str, Any]
) -> None:
    rates.remember(plan(**other), staged())
    expected = rates.expect(plan())
    assert (expected.seconds, expected.words) == (None, "not known yet: never staged over this route")


def test_a_small_copy_says_nothing_of_a_large_one_and_does_not_replace_it(rates: RouteRates) -> None:
    rates.remember(plan(), staged(bytes=MIB))
    expected = rates.expect(plan())
    assert (expected.seconds, expected.words) == (
        None,
        "not known yet: only 1.0 MiB came over this route in 10 s",
    )
    rates.remember(plan(), staged())
    rates.remember(plan(), staged(resumed_at=49 * MIB))
    assert rates.expect(plan()).seconds == 20.0


def test_a_rate_bounds_it_from_below(rates: RouteRates) -> None:
    unknown = rates.expect(plan(rate=MIB))
    assert unknown.seconds is None
    assert unknown.words.endswith("; at least 1 min 40 s at --rate 1.0 MiB/s")
    rates.remember(plan(), staged())
    assert rates.expect(plan(rate=MIB)).seconds == 100.0
    rates.remember(plan(rate=MIB), staged(seconds=500.0))
    assert rates.expect(plan(rate=MIB)).seconds == 1000.0
    assert rates.expect(plan()).seconds == 20.0


def test_what_has_come_already_takes_no_time_and_what_is_staged_none_at_all(rates: RouteRates) -> None:
    rates.remember(plan(), staged())
    assert rates.expect(plan(arrived=50 * MIB)).seconds == 10.0
    assert rates.expect(plan(staged={"path": "x"})).seconds is None


def test_only_bytes_that_came_now_count_and_a_reused_copy_does_not(rates: RouteRates) -> None:
    rates.remember(plan(), staged(bytes=100 * MIB, resumed_at=20 * MIB, seconds=8.0))
    rates.remember(plan(), staged(reused=True, seconds=1.0))
    rates.remember(plan(), staged(resumed_at=50 * MIB, seconds=1.0))
    assert rates.expect(plan()).seconds == 10.0


@pytest.mark.parametrize(
    "text", ["", "[]", "[" * 100_000, '{"x": 1}', '{"x": {"bytes": true, "seconds": 1, "at": "2026"}}', "\0"]
)
def test_a_file_that_is_damaged_or_gone_is_as_if_nothing_was_known(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rates.json"
    path.write_text(text)
    rates = RouteRates(path)
    assert rates.expect(plan()).seconds is None
    rates.remember(plan(), staged())
    assert rates.expect(plan()).seconds == 20.0
    path.unlink()
    assert rates.expect(plan()).seconds is None


def test_the_file_stays_small_and_a_place_that_cannot_be_written_costs_no_staging(tmp_path: Path) -> None:
    rates = RouteRates(tmp_path / "rates.json")
    for number in range(ROUTES + 5):
        rates.remember(plan(folder=f"/{number}"), staged())
    assert [path.name for path in tmp_path.iterdir()] == ["rates.json"]
    assert rates.expect(plan(folder="/4")).seconds is None
    assert rates.expect(plan(folder="/5")).seconds == 20.0
    RouteRates(tmp_path / "rates.json/below").remember(plan(), staged())


def test_the_pace_is_that_of_the_last_seconds_and_of_this_runs_bytes_alone() -> None:
    pace = Pace()
    assert (pace.rate, pace.left(100)) == (None, None)
    pace.at(0.0, 5000)  # of an earlier run
    assert pace.rate is None
    for second in range(1, 11):
        pace.at(float(second), 5000 + second * 10)
    assert (pace.rate, pace.left(5200)) == (10.0, 10.0)
    for second in range(11, 41):
        pace.at(float(second), 5100 + (second - 10) * 100)
    assert pace.rate == 100.0


def test_a_pace_without_new_bytes_tells_for_how_long_and_one_that_began_anew_forgets() -> None:
    pace = Pace()
    pace.at(0.0, 100)
    pace.at(1.0, 200)
    pace.at(7.0, 200)
    assert pace.still == 6.0
    for second in range(8, 40):
        pace.at(float(second), 200)
    assert (pace.rate, pace.left(300)) == (0.0, None)
    pace.at(41.0, 50)
    assert (pace.rate, pace.still) == (None, 0.0)


def test_getting_ready_is_not_the_pace() -> None:
    pace = Pace()
    for second in range(12):
        pace.at(float(second), 500)
    pace.at(12.0, 600)
    assert pace.rate == 100.0
