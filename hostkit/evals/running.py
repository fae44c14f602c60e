"""Run the payload as a job on the evaluation host, tell how far it is, and bring its result back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hostkit.errors import DataError, DeadlineError, JobEndedError
from hostkit.evals.harness import Harness
from hostkit.evals.results import EvalResult
from hostkit.jobs import JobLimits, JobSpec, JobState, Launcher, State

RESULT = "result.json"
WHOLE, ONE_BLOCK = "eval", "eval-one-block"  # kinds of job
LOG_LIMIT = 4 * 2**20
DISK_RESERVE = 128 * 2**20  # the job is ended when less is left: its host may be somebody's way in


def limits(memory: int | None, cpus: int | None, wall: float, peak_bytes: int) -> JobLimits:
    """Return the job's limits: what the inventory says, else the computed peak and a quarter."""
    return JobLimits(
        memory_bytes=memory if memory is not None else max(peak_bytes * 5 // 4, 512 * 2**20),
        cpus=cpus,
        wall_seconds=wall,
        disk_reserve_bytes=DISK_RESERVE,
    )


def spec(
    name: str, argv: list[str], inputs: dict[str, Any], limit: JobLimits, *, kind: str = WHOLE
) -> JobSpec:
    """Return the job that an evaluation is: CPU only, its working directory its own folder."""
    return JobSpec(kind=kind, name=name, argv=tuple(argv), limits=limit, hide_gpus=True, inputs=inputs)


class Follower:
    """Reads the payload's progress lines as they come, and tells them in words."""

    def __init__(self, say: Callable[[str], None], progress: Callable[[dict[str, Any]], str]) -> None:
        self._say = say
        self._progress = progress
        self._rest = b""
        self.last_error: dict[str, Any] | None = None

    def __call__(self, state: JobState, data: bytes) -> None:
        """Take new bytes of the job's output."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            event = _event(line)
            if event is None:
                continue
            if event.get("event") == "error":
                self.last_error = event
            words = self._progress(event)
            if words:
                self._say(words)
        if not data and state.state is State.RUNNING and state.reason:
            self._say(str(state.reason))

    @property
    def last_words(self) -> str:
        """Return what the payload said was wrong; empty when it said nothing."""
        if self.last_error is None:
            return ""
        hint = self.last_error.get("hint")
        return str(self.last_error.get("what", "")) + (f" ({hint})" if hint else "")


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def follow(
    launcher: Launcher,
    state: JobState,
    say: Callable[[str], None],
    progress: Callable[[dict[str, Any]], str],
    *,
    timeout: float | None = None,
) -> JobState:
    """Follow a job to its good end. Raises JobEndedError for any other, DeadlineError after `timeout` seconds."""
    follower = Follower(say, progress)
    ended = launcher.follow(state.attempt_id, timeout=timeout, progress=follower)
    if ended.state is State.RUNNING:
        raise DeadlineError(
            "--timeout was used up while the evaluation runs",
            hop=launcher.host,
            where=f"{launcher.host}, job {ended.job}",
            hint="it runs on there; run the same command to follow it, or "
            f"`hostkit job-cancel {ended.attempt_id} --host {launcher.host}`",
        )
    if not ended.ok:
        raise _ended_badly(ended, follower.last_words)
    return ended


def _ended_badly(state: JobState, last: str) -> JobEndedError:
    how = {"failed": f"exit {state.exit}", "killed": f"signal {state.signal}"}.get(
        state.state, state.reason or ""
    )
    return JobEndedError(
        f"the evaluation ended as '{state.state}' ({how}){': ' + last if last else ''}",
        state=state.state,
        where=f"{state.host}, job {state.job}",
        hint=f"`hostkit job-log {state.attempt_id} --host {state.host}` shows its output; "
        "the same command begins a new attempt",
    )


def collect(
    launcher: Launcher, harness: Harness, state: JobState, evaluation_id: str, sha256: str
) -> tuple[EvalResult, bytes]:
    """Return the job's result and its log. A result that is not this evaluation's own is a DataError."""
    where = f"{launcher.host}, job {state.job}"
    result = harness.parse(launcher.fetch(state.attempt_id, RESULT), where=f"{where}, results/{RESULT}")
    if result.id != evaluation_id:
        raise DataError(
            f"the result is of another evaluation ({result.id}, not {evaluation_id})",
            where=where,
            hint="somebody wrote into the job's folder; --rerun evaluates again",
        )
    if result.checkpoint.sha256 not in (None, sha256):
        raise DataError(
            "the result is of other weights than were staged", where=where, hint="--rerun evaluates again"
        )
    out, _ = launcher.tail(state.attempt_id, -LOG_LIMIT, limit=LOG_LIMIT)
    err, _ = launcher.tail(state.attempt_id, -LOG_LIMIT // 4, file="err", limit=LOG_LIMIT // 4)
    return result, out + (b"\n--- standard error ---\n" + err if err.strip() else b"")
