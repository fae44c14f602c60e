"""A job's row says how it ended in the words of its exit status, and why only where that says more."""

from __future__ import annotations

from typing import Any

import pytest

from hostkit.jobs import JobSpec, JobState
from hostkit.report.jobs_rows import detail_of, rows_of

SPEC = JobSpec(kind="eval", name="drafter", argv=("x",), inputs={"step": 4000})


def job(**facts: Any) -> JobState:
    return JobState.model_validate(
        {"host": "ct129", "job": "fac22015b58a8904", "attempt": 1, "path": "/x", "spec": SPEC} | facts
    )


@pytest.mark.parametrize(
    ("facts", "outcome", "why"),
    [
        ({"state": "done", "exit": 0, "reason": "ended by itself with exit status 0"}, "done (exit 0)", ""),
        ({"state": "failed", "exit": 3, "reason": "ended by itself with exit status 3"}, "failed (exit 3)", ""),
        ({"state": "failed", "exit": 127, "reason": "cannot run x"}, "failed (exit 127)", "cannot run x"),
        ({"state": "killed", "signal": 9, "reason": "killed by signal 9 (SIGKILL)"}, "killed",
         "killed by signal 9 (SIGKILL)"),
        ({"state": "running"}, "running", ""),
    ],
)  # fmt: skip
def test_how_it_ended(facts: dict[str, Any], outcome: str, why: str) -> None:
    (row,) = rows_of([job(**facts)])
    assert (row.outcome, row.why, row.what) == (outcome, why, "eval drafter step 4000")


def test_what_kept_it_out_of_the_way_is_named_and_what_did_not() -> None:
    measures = [
        {"name": "nice", "real": True, "detail": "19"},
        {"name": "cpu-weight", "real": False, "detail": "no writable cpu group here"},
    ]
    detail = detail_of(job(state="running", levers=measures, evidence=("x",)))
    assert detail.evidence == ("x", "isolation: nice; not applied: cpu-weight (no writable cpu group here)")
    document = job(state="running", levers=measures).document()
    assert document["levers"] == measures, "the stored keys are those of the version before"
