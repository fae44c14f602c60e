"""Look at jobs, follow them, end them: always by what their folder and their identity say."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable

from hostkit.errors import AuthError, HostKeyError, ProtocolError, UnreachableError
from hostkit.inventory.models import Host
from hostkit.jobs.asking import ask, job_state
from hostkit.jobs.models import JobState
from hostkit.transport.base import Transport

Progress = Callable[[JobState, bytes], None]


def inspect(transport: Transport, host: Host, job_id: str) -> JobState:
    """Return what is known of a job's newest attempt (`ID-1` means the first)."""
    return job_state(transport, ask(transport, host, "inspect", job=job_id))


def tail(
    transport: Transport,
    host: Host,
    job_id: str,
    offset: int = -65536,
    *,
    file: str = "out",
    limit: int = 65536,
) -> tuple[bytes, int]:
    """Return at most `limit` bytes of the job's output from `offset` (below zero: from its end), and where they end."""
    reply = ask(transport, host, "poll", job=job_id, file=file, offset=offset, limit=limit)
    return base64.b64decode(reply["data"]), int(reply["offset"])


def wait(
    transport: Transport,
    host: Host,
    job_id: str,
    *,
    timeout: float | None = None,
    progress: Progress | None = None,
    offset: int = 0,
    hold: float = 2.0,
    patience: float = 300.0,
) -> JobState:
    """Follow a job to its end, and return its state; the state 'running' when `timeout` seconds passed first.

    `progress` gets each state with the new bytes of `out`, from `offset` on. A lost transport is tried again
    for `patience` seconds in a row before its error is raised: the job does not care whether it is watched.
    """
    ends = None if timeout is None else time.monotonic() + timeout
    lost_since: float | None = None
    while True:
        left = None if ends is None else max(0.0, ends - time.monotonic())
        asked = hold if left is None else min(hold, left)
        try:
            reply = ask(
                transport,
                host,
                "poll",
                job=job_id,
                offset=offset,
                limit=1 << 20,
                hold=asked,
                timeout=asked + 30,
            )
        except (HostKeyError, AuthError):
            raise  # these do not mend themselves
        except (UnreachableError, ProtocolError):
            now = time.monotonic()
            lost_since = now if lost_since is None else lost_since
            if now - lost_since >= patience or (ends is not None and now >= ends):
                raise
            time.sleep(min(5.0, 0.5 + (now - lost_since) / 4))
            continue
        lost_since = None
        state = job_state(transport, reply["job"])
        data, offset = base64.b64decode(reply["data"]), int(reply["offset"])
        if progress is not None:
            progress(state, data)
        if state.state != "running" and offset >= int(reply["size"]):
            return state
        if left is not None and left <= 0:
            return state


def cancel(transport: Transport, host: Host, job_id: str, *, by: str = "hostkit") -> JobState:
    """End a job, and return how it ended. One that has ended is left as it is.

    Its identity is proven in the program that signals; a job whose state is unknown is not signalled.
    """
    return job_state(transport, ask(transport, host, "cancel", job=job_id, by=by, timeout=120.0))


def list_jobs(transport: Transport, host: Host, *, limit: int = 200) -> list[JobState]:
    """Return the newest jobs of a host, oldest first."""
    reply = ask(transport, host, "list", limit=limit)
    return [job_state(transport, found) for found in reply["jobs"]]
