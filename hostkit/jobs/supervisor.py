"""The bundled launcher: a supervisor process on the host, one folder a job (hostkit/remote/job_control.py)."""

from __future__ import annotations

import base64
import time
from typing import Any

from pydantic import ValidationError

from hostkit.errors import (
    AuthError,
    DataError,
    DeadlineError,
    HostKeyError,
    ProtocolError,
    UnreachableError,
)
from hostkit.inventory.models import Host
from hostkit.jobs.files import check_name
from hostkit.jobs.headroom import Facts
from hostkit.jobs.job_control import ask
from hostkit.jobs.launcher import Progress
from hostkit.jobs.models import JobSpec, JobState, State
from hostkit.transport.base import Transport

HOLD = 2.0  # seconds that the host waits for news before it answers a poll
PATIENCE = 300.0  # seconds in a row for which a lost connection is tried again


class Supervisor:
    """The jobs of one host, each under its own supervisor process. See `Launcher`."""

    def __init__(
        self, transport: Transport, host: Host, *, hold: float = HOLD, patience: float = PATIENCE
    ) -> None:
        self._transport = transport
        self._host = host
        self._hold = hold
        self._patience = patience

    @property
    def host(self) -> str:
        return self._transport.host

    def start(self, spec: JobSpec, *, again: bool = False) -> JobState:
        reply = self._ask("launch", job=spec.id, spec=spec.model_dump(mode="json"), again=again)
        return _job_state(self.host, reply)

    def inspect(self, job: str) -> JobState:
        return _job_state(self.host, self._ask("inspect", job=job))

    def follow(
        self, job: str, *, timeout: float | None = None, progress: Progress | None = None, offset: int = 0
    ) -> JobState:
        ends = None if timeout is None else time.monotonic() + timeout
        lost_since: float | None = None
        while True:
            left = None if ends is None else max(0.0, ends - time.monotonic())
            hold = self._hold if left is None else min(self._hold, left)
            try:
                reply = self._ask("poll", job=job, offset=offset, limit=1 << 20, hold=hold, timeout=hold + 30)
            except (HostKeyError, AuthError, DeadlineError):
                raise  # trying again would not help
            except (UnreachableError, ProtocolError):
                now = time.monotonic()
                lost_since = now if lost_since is None else lost_since
                if now - lost_since >= self._patience or (ends is not None and now >= ends):
                    raise
                pause = min(5.0, 0.5 + (now - lost_since) / 4)
                time.sleep(pause if ends is None else min(pause, ends - now))
                continue
            lost_since = None
            state = _job_state(self.host, reply["job"])
            data, offset = base64.b64decode(reply["data"]), int(reply["offset"])
            if progress is not None:
                progress(state, data)
            if state.state is not State.RUNNING and offset >= int(reply["size"]):
                return state
            if left is not None and left <= 0:
                return state

    def cancel(self, job: str, *, by: str = "hostkit") -> JobState:
        return _job_state(self.host, self._ask("cancel", job=job, by=by, timeout=120.0))

    def list_jobs(self, *, limit: int = 200) -> list[JobState]:
        return [_job_state(self.host, job) for job in self._ask("list", limit=limit)["jobs"]]

    def tail(
        self, job: str, offset: int = -65536, *, file: str = "out", limit: int = 65536
    ) -> tuple[bytes, int]:
        reply = self._ask("poll", job=job, file=file, offset=offset, limit=limit)
        return base64.b64decode(reply["data"]), int(reply["offset"])

    def result_names(self, job: str) -> list[str]:
        return [str(name) for name in self._ask("fetch", job=job)["names"]]

    def fetch(self, job: str, name: str, *, limit: int = 256 * 2**20) -> bytes:
        check_name(name)
        data, version = bytearray(), None
        while True:
            reply = self._ask("fetch", job=job, name=name, offset=len(data), timeout=300.0)
            size = int(reply["size"])
            if version not in (None, (size, reply["mtime_ns"])):
                raise DataError(f"results/{name} changed while it was fetched", where=self.host)
            if size > limit:
                raise DataError(f"results/{name} has {size} bytes, more than {limit}", where=self.host)
            version = (size, reply["mtime_ns"])
            part = base64.b64decode(reply["data"])
            data += part
            if len(data) >= size:
                return bytes(data)
            if not part:
                raise DataError(f"results/{name} ended before its size", where=self.host)

    def facts(self, paths: list[str] | None = None) -> Facts:
        return Facts.model_validate(self._ask("facts", paths=paths or []))

    def _ask(self, operation: str, *, timeout: float | None = 60.0, **request: Any) -> dict[str, Any]:
        return ask(self._transport, self._host, operation, timeout=timeout, **request)


def _job_state(host: str, reply: dict[str, Any]) -> JobState:
    """Read what the host says of a job."""
    document = dict(reply)
    claim = document.pop("spec", None) or {}
    document |= {"host": host, "spec": _spec(claim.get("spec")), "claimed_at": claim.get("claimed_at")}
    if document.get("reason") == "supervised":  # as it should be: no news
        document["reason"] = None
    document["attempt"] = int(str(reply["job"]).partition("-")[2] or 1)
    try:
        return JobState.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        raise ProtocolError(
            f"the job's record is not understood: {first['loc']}: {first['msg']}",
            where=f"{host}:{reply.get('path')}",
        ) from error


def _spec(claimed: object) -> JobSpec | None:
    """Read a claimed spec; one that this version does not understand does not hide the job's state."""
    try:
        return JobSpec.model_validate(claimed)
    except ValidationError:
        return None
