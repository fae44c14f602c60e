"""The latest checkpoint: newest complete of the live attempt, with a reason for each that is not."""

from __future__ import annotations

import pytest

from hostkit.checkpoints import Candidate, choose, choose_step
from hostkit.errors import DataError, UsageError


def one(step: int, *, complete: bool = True, reason: str | None = None, mtime: int = 1000) -> Candidate:
    return Candidate(step=step, path=f"/c/step_{step}.pt", complete=complete, reason=reason, mtime_ns=mtime)


def why(choice: object, step: int) -> str:
    return next(ranked.why for ranked in choice.ranked if ranked.candidate.step == step)  # type: ignore[attr-defined]


@pytest.mark.report("c1")
def test_steps_are_numbers_not_text() -> None:
    choice = choose([one(999), one(10000), one(4000), one(9000)], 10500)
    assert choice.chosen is not None
    assert choice.chosen.step == 10000
    assert [ranked.candidate.step for ranked in choice.ranked] == [10000, 9000, 4000, 999]


@pytest.mark.report("c3")
def test_an_incomplete_newest_one_is_reported_and_the_one_before_is_used() -> None:
    choice = choose([one(4000), one(5000, complete=False, reason="no marker DONE")], 5296)
    assert choice.chosen == one(4000)
    (passed,) = choice.passed_over
    assert passed.why == "incomplete: no marker DONE"


def test_a_step_above_the_live_one_is_listed_and_never_chosen() -> None:
    choice = choose([one(9000), one(4000)], 5296)
    assert choice.chosen == one(4000)
    assert "earlier attempt" in why(choice, 9000)


def test_a_stray_below_the_live_step_is_told_by_its_age() -> None:
    stray, own = one(4500, mtime=10), one(4000, mtime=2000)
    choice = choose([stray, own], 5296, started_ns=1000)
    assert choice.chosen == own
    assert why(choice, 4500) == "written before the live attempt began"


def test_what_a_run_resumed_from_is_used_until_it_saves_and_that_is_said() -> None:
    choice = choose([one(4000, mtime=10)], 4100, started_ns=1000)
    assert choice.chosen == one(4000, mtime=10)
    assert choice.note is not None
    assert "before the live attempt began" in choice.note


@pytest.mark.report("c19")
def test_an_older_step_that_turns_up_late_is_not_the_latest() -> None:
    choice = choose([one(6000, mtime=2000), one(5000, mtime=9000)], 6100, started_ns=1000)
    assert choice.chosen == one(6000, mtime=2000)
    assert choose_step([one(6000), one(5000)], 5000) == one(5000)


def test_without_a_live_step_the_doubt_is_said() -> None:
    choice = choose([one(4000)], None)
    assert choice.chosen == one(4000)
    assert choice.note is not None


def test_nothing_complete_means_nothing_chosen_and_every_reason_told() -> None:
    choice = choose([one(1, complete=False, reason="an empty file (0 bytes)"), one(9)], 5)
    assert choice.chosen is None
    assert len(choice.passed_over) == 2
    assert choose([], 5).chosen is None


def test_of_two_names_of_one_step_the_newer_file_is_taken() -> None:
    newer, older = one(7, mtime=20), one(7, mtime=10)
    choice = choose([older, newer], 9)
    assert choice.chosen == newer
    assert [ranked.why for ranked in choice.ranked] == ["chosen", "same step, older file"]


def test_of_many_steps_only_the_nearest_are_named() -> None:
    with pytest.raises(UsageError) as error:
        choose_step([one(step) for step in range(100, 6001, 100)], 999_999)
    assert (
        error.value.hint == "nearest steps: 5600, 5700, 5800, 5900, 6000 (60 in all: `hostkit checkpoints`)"
    )


def test_a_step_that_is_asked_for_must_be_there_and_whole() -> None:
    with pytest.raises(UsageError, match=r"no checkpoint of step 3.*nearest steps: 1, 2"):
        choose_step([one(1), one(2)], 3)
    with pytest.raises(DataError, match="step 2 is incomplete: truncated archive"):
        choose_step([one(1), one(2, complete=False, reason="truncated archive")], 2)
