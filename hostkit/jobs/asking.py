"""One request to the supervisor program of a host, and its answer or the error that it means."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from hostkit.errors import CannotCreateError, DataError, ProtocolError, RefusedError, UsageError
from hostkit.inventory.models import Host
from hostkit.jobs.models import JobSpec, JobState
from hostkit.transport.base import Transport
from hostkit.transport.programs.run import run_program

_READING = {"inspect", "poll", "list", "fetch", "facts"}  # asked once more when the connection was lost
_WRITING = {
    "ENOSPC",
    "EDQUOT",
    "EROFS",
    "EACCES",
    "EPERM",
    "ENOTDIR",
    "ENAMETOOLONG",
    "EIO",
    "EMFILE",
    "ENFILE",
}


def ask(
    transport: Transport,
    host: Host,
    operation: str,
    *,
    timeout: float | None = 60.0,
    stdin: bytes = b"",
    **request: Any,
) -> dict[str, Any]:
    """Ask the host; raise what its refusal or failure means."""
    request |= {"op": operation, "state": host.state}
    reply = run_program(
        transport,
        host.python,
        "job_control",
        request,
        timeout=timeout,
        stdin=stdin,
        retry=operation in _READING,
    )
    if "refused" in reply:
        rule, what = str(reply["refused"]["rule"]), str(reply["refused"]["what"])
        if rule == "no-such-job":
            raise UsageError(what, where=transport.host, hint="`hostkit job-list` shows those there are")
        if rule in ("no-such-file", "damaged"):
            raise DataError(what, where=transport.host)
        raise RefusedError(what, rule=rule, where=transport.host)
    if "failed" in reply:
        code, what = str(reply["failed"]["errno"]), str(reply["failed"]["what"])
        kind = CannotCreateError if code in _WRITING else DataError
        raise kind(
            what, where=transport.host, hint="look at space and permissions there, or set the host's `state`"
        )
    return reply


def job_state(transport: Transport, found: dict[str, Any]) -> JobState:
    """Read what the host says of a job."""
    document = dict(found)
    claim = document.pop("spec", None) or {}
    document |= {
        "host": transport.host,
        "spec": _spec(claim.get("spec")),
        "claimed_at": claim.get("claimed_at"),
    }
    document["attempt"] = int(str(found["job"]).partition("-")[2] or 1)
    try:
        return JobState.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = f"{transport.host}:{found.get('path')}"
        raise ProtocolError(
            f"the job's record is not understood: {first['loc']}: {first['msg']}", where=where
        ) from error


def _spec(claimed: object) -> JobSpec | None:
    """Read a claimed spec; one that this version does not understand does not hide the job's state."""
    try:
        return JobSpec.model_validate(claimed)
    except ValidationError:
        return None
