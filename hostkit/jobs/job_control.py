"""One request to the job_control program of a host, and its reply or the error that it means."""

from __future__ import annotations

from typing import Any

from hostkit.errors import CannotCreateError, DataError, RefusedError, UsageError
from hostkit.inventory.models import Host
from hostkit.transport.base import Transport
from hostkit.transport.programs.run import run_program

_READS = {"inspect", "poll", "list", "fetch", "facts"}  # asked once more when the connection was lost
_WRITE_ERRORS = {
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
    """Ask the host's job_control program; raise what its refusal or failure means."""
    request |= {"op": operation, "state": host.state}
    reply = run_program(
        transport,
        host.python,
        "job_control",
        request,
        timeout=timeout,
        stdin=stdin,
        retry=operation in _READS,
    )
    if "refused" in reply:
        rule, what = str(reply["refused"]["rule"]), str(reply["refused"]["what"])
        if rule == "no-such-job":
            raise UsageError(what, where=transport.host, hint="`hostkit job-list` lists the jobs")
        if rule in ("no-such-file", "damaged"):
            raise DataError(what, where=transport.host)
        raise RefusedError(what, rule=rule, where=transport.host)
    if "failed" in reply:
        code, what = str(reply["failed"]["errno"]), str(reply["failed"]["what"])
        kind = CannotCreateError if code in _WRITE_ERRORS else DataError
        raise kind(
            what, where=transport.host, hint="check space and permissions there, or set the host's `state`"
        )
    return reply
