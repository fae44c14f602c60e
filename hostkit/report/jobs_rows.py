"""What the screens of jobs say: one row a job, how one ended and what that rests on. Data only."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from hostkit.formatting import age, moment
from hostkit.jobs.models import JobState, State


@dataclass(frozen=True)
class JobRow:
    """One job in a list; `why`: the reason of an end that was not a good one."""

    host: str
    job: str
    what: str
    state: State
    outcome: str
    started: str
    took: str
    why: str = ""


@dataclass(frozen=True)
class JobDetail:
    """One job: its state, and what that rests on."""

    job: str
    host: str
    state: State
    outcome: str
    reason: str
    evidence: tuple[str, ...]


def rows_of(jobs: Sequence[JobState]) -> list[JobRow]:
    """Return a row for each job, in their order."""
    return [
        JobRow(
            host=job.host,
            job=job.job,
            what=_what(job),
            state=job.state,
            outcome=outcome(job),
            started="?" if started is None else moment(started),
            took=took(job),
            why=_reason(job) if job.state != State.RUNNING else "",
        )
        for job in jobs
        for started in [job.started_at or job.claimed_at]
    ]


def detail_of(job: JobState) -> JobDetail:
    """Return one job with its evidence and its isolation measures."""
    measures = job.isolation_measures
    applied = ", ".join(measure.name for measure in measures if measure.applied)
    missing = ", ".join(f"{measure.name} ({measure.detail})" for measure in measures if not measure.applied)
    evidence = [*job.evidence]
    if applied:
        evidence.append(f"isolation: {applied}" + (f"; not applied: {missing}" if missing else ""))
    return JobDetail(job.job, job.host, job.state, outcome(job), _reason(job), tuple(evidence))


def outcome(job: JobState) -> str:
    """Return the state with the exit status where the payload ended by itself: `done (exit 0)`."""
    by_itself = job.state in (State.DONE, State.FAILED) and job.exit is not None
    return f"{job.state} (exit {job.exit})" if by_itself else str(job.state)


def took(job: JobState) -> str:
    """Return how long a job took, or has run by now (by this machine's clock)."""
    seconds = job.wall_seconds if job.ended_at is not None else None
    if seconds is None and job.state == State.RUNNING and job.started_at is not None:
        seconds = max(0.0, time.time() - job.started_at)
    return "?" if seconds is None else age(seconds)


def _what(job: JobState) -> str:
    if job.spec is None:
        return "?"
    step = job.spec.inputs.get("step")
    return f"{job.spec.kind} {job.spec.name}" + (f" step {step}" if step is not None else "")


def _reason(job: JobState) -> str:
    """Return the reason where it says more than the outcome does."""
    if job.state == State.DONE or (job.reason or "").startswith("ended by itself"):
        return ""
    return job.reason or ""
