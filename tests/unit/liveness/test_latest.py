"""The checkpoint that is meant: chosen on the facts of one look, and never on facts that are not known."""

from __future__ import annotations

import pytest

from hostkit.errors import DataError, UnreachableError
from hostkit.liveness.latest import choice_of, choose_latest
from hostkit.liveness.status import CheckpointStatus, HopStatus, HostStatus, StepStatus, TrainStatus

STARTED = 1_000_000_000


def saved(step: int, *, after: int = 1, **changes: object) -> CheckpointStatus:
    facts = {
        "step": step, "path": f"/w/step_{step}/checkpoint.pt", "format": "torch-zip", "complete": True, "reason": None,
        "size": 10, "age": 5.0, "mtime_ns": STARTED + after, "inode": step, "dev": 1, "writer": False,
        "attempt": "live", "before_start": after < 0, "newest": False,
    }  # fmt: skip
    return CheckpointStatus.model_validate(facts | changes)


def status(*checkpoints: CheckpointStatus, live: int = 100, **changes: object) -> TrainStatus:
    facts: dict[str, object] = {
        "run": "drafter", "host": HostStatus(name="ct200"), "verdict": "RUNNING", "exit": 0, "at": 0.0, "since": 0.0,
        "evidence": [], "step": StepStatus(live=live, live_at_most=live), "checkpoints": list(checkpoints),
        "started_ns": STARTED,
    }  # fmt: skip
    return TrainStatus.model_validate(facts | changes)


def test_what_this_attempt_has_saved_comes_before_a_higher_step_of_an_earlier_one() -> None:
    found = choose_latest(status(saved(40), saved(60, after=-1), saved(80, complete=False, reason="cut")))
    assert found.candidate.step == 40
    assert [note.split(":")[0] for note in found.notes] == [
        "step 80 was passed over",
        "step 60 was passed over",
    ]


def test_checkpoints_that_cannot_be_listed_are_not_no_checkpoints() -> None:
    with pytest.raises(DataError, match="cannot be listed: Permission denied"):
        choice_of(status(checkpoints_error="Permission denied"))
    with pytest.raises(DataError, match="has no complete checkpoint"):
        choose_latest(status())


def test_a_host_that_was_not_reached_names_the_hop_and_what_stood() -> None:
    hops = [
        HopStatus(name="ct129", kind="ssh", state="ok"),
        HopStatus(name="pve", kind="ssh", state="failed", error="no answer"),
    ]
    with pytest.raises(UnreachableError, match="no answer") as caught:
        choice_of(status(verdict="UNKNOWN", hops=hops))
    assert (caught.value.hop, caught.value.hops_reached) == ("pve", ("ct129",))


def test_a_host_that_answered_with_an_error_was_reached() -> None:
    hops = [HopStatus(name="pve", kind="ssh", state="failed", error="probe failed: no", answered=True)]
    with pytest.raises(DataError, match="probe failed: no") as caught:
        choice_of(status(verdict="UNKNOWN", hops=hops))
    assert caught.value.exit_code == 65
    assert "not reached" not in str(caught.value)
