"""How long a staging takes is foretold from one that was measured, or not at all; and how fast one goes."""

from __future__ import annotations

from typing import Any

import pytest

from hostkit.checkpoints import Contents, StagePlan
from hostkit.staging.stage import Staged
from hostkit.staging.timing import EVENT, Pace, expect, took

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


def event(**more: Any) -> dict[str, Any]:
    base = {
        "event": EVENT,
        "at": "2026-11-30T10:00:00.000+00:00",
        "host": "ct129",
        "folder": "/s",
        "source": "ct200",
        "by": "pull",
        "carried": "rsync",
        "route": ["pve", "ct200"],
        "bytes": 50 * MIB,
        "seconds": 10.0,
        "rate": None,
    }
    return base | more


def test_the_last_one_over_the_same_route_tells_it() -> None:
    found = expect(plan(), [event(seconds=99.0), event(), event(route=["ct200"], seconds=1.0)])
    assert found.seconds == 20.0
    assert found.words == "about 20 s (50.0 MiB came over this route in 10 s, 2026-11-30T10:00Z)"


@pytest.mark.parametrize(
    "other",
    [
        {"route": ["ct200"]},
        {"folder": "/other"},
        {"host": "workspace"},
        {"source": "other"},
        {"by": "push"},
        {"carried": "stream"},
        {"event": "stage"},
        {"seconds": 0},
        {"bytes": None},
        {"rate": MIB},
    ],
)
def test_no_time_is_made_up_from_another_route_or_from_one_that_was_slowed(other: dict[str, Any]) -> None:
    found = expect(plan(), [event(**other)])
    assert (found.seconds, found.words) == (None, "not known yet: never staged over this route")


def test_a_small_copy_says_nothing_of_a_large_one() -> None:
    found = expect(plan(), [event(bytes=MIB)])
    assert (found.seconds, found.words) == (
        None,
        "not known yet: at most 1.0 MiB came over this route before",
    )


def test_a_rate_bounds_it_from_below() -> None:
    assert expect(plan(rate=MIB), [event()]).seconds == 100.0
    assert expect(plan(rate=MIB), [event(seconds=500.0)]).seconds == 1000.0
    unknown = expect(plan(rate=MIB), [])
    assert unknown.seconds is None
    assert unknown.words.endswith("; at least 1 min 40 s at --rate 1.0 MiB/s")


def test_what_has_come_already_takes_no_time_and_what_is_staged_none_at_all() -> None:
    assert expect(plan(arrived=50 * MIB), [event()]).seconds == 10.0
    assert expect(plan(staged={"path": "x"}), [event()]).seconds is None


def staged(**more: Any) -> Staged:
    base: dict[str, Any] = {"path": "/s/c.pt", "host": "ct129", "sha256": "0", "bytes": 100, "step": 1}
    return Staged(**(base | {"route": (), "method": "full", "seconds": 2.0} | more))


def test_what_is_kept_of_a_staging_is_what_foretells_the_next_one() -> None:
    kept = took(plan(), staged(bytes=100 * MIB, resumed_at=20 * MIB, seconds=8.0))
    assert kept is not None
    assert expect(plan(), [kept | {"event": EVENT, "at": "2026"}]).seconds == 10.0
    assert took(plan(), staged(reused=True)) is None
    assert took(plan(), staged(resumed_at=100)) is None


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
