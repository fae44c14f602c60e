"""The evaluation under way: one kernel lock and one small file, so that a command that was cut goes on.

Both lie under the state directory of this machine. The lock is the kernel's: it ends with the process that
held it, however that ended. The file says which checkpoint is being evaluated, and what was seen before.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from hostkit.directories import state_directory
from hostkit.errors import BusyError, CannotCreateError, DataError, DeadlineError
from hostkit.evals.archive import read_regular


class Record(BaseModel):
    """What an evaluation that is under way has settled on. `job` and `staged` are known once the payload runs."""

    model_config = ConfigDict(frozen=True)

    evaluation_id: str
    started_at: str
    pid: int
    candidate: dict[str, Any]
    sample: str
    notes: list[str] = []
    verdict_before: dict[str, Any]
    plan: dict[str, Any] | None = None
    staged: dict[str, Any] | None = None
    job: str | None = None
    rerun: bool = False  # asked for although the archive has a result
    archived: str | None = None  # the folder, once the result is filed
    step: str = "find"  # of the pipeline, for whoever asks what goes on


class EvaluationLock:
    """The lock and the record of one evaluation of one archive; a context manager that holds the lock."""

    def __init__(self, archive: str, evaluation: str) -> None:
        key = hashlib.sha256(f"{archive}\0{evaluation}".encode()).hexdigest()[:12]
        folder = state_directory() / "evals"
        self.evaluation = evaluation
        self.path = folder / f"{evaluation}-{key}.json"
        self._lock_path = folder / f"{evaluation}-{key}.lock"

    def __enter__(self) -> EvaluationLock:
        from filelock import FileLock, Timeout

        self._lock = FileLock(str(self._lock_path), mode=0o600)
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock.acquire(blocking=False)
        except Timeout:
            raise BusyError(
                f"the evaluation {self.evaluation} is running already: {self.description()}",
                where="this machine",
                hint="--attach follows it and shows its result",
            ) from None
        except OSError as error:
            raise _cannot(self._lock_path, error) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, say: Callable[[str], None], timeout: float | None = None) -> Record | None:
        """Wait until whoever evaluates has ended, telling where that is; return its record, None if nobody did.

        Raises DeadlineError after `timeout` seconds.
        """
        from filelock import FileLock, Timeout

        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _cannot(self._lock_path, error) from error
        last: Record | None = None
        lock = FileLock(str(self._lock_path), mode=0o600)
        told = ""
        ends = None if timeout is None else time.monotonic() + timeout
        while True:
            left = 1.0 if ends is None else min(1.0, max(0.0, ends - time.monotonic()))
            try:
                with lock.acquire(timeout=left):
                    return last
            except Timeout:
                last = self.read() or last
                message = self.description()
                if message != told:
                    told = message
                    say(message)
                if ends is not None and time.monotonic() >= ends:
                    raise DeadlineError(
                        f"--timeout was used up while the evaluation runs: {message}",
                        hop="this machine",
                        hint="it runs on; run the same command to follow it again",
                    ) from None

    def read(self) -> Record | None:
        """Return the record that was left, or is being kept; None when there is none that can be read."""
        try:
            return Record.model_validate(json.loads(read_regular(self.path)))
        except (OSError, ValueError, ValidationError, RecursionError, DataError):
            return None

    def write(self, record: Record) -> Record:
        """Keep the record, whole or not at all."""
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            draft.write_text(record.model_dump_json())
            draft.chmod(0o600)
            draft.rename(self.path)
        except OSError as error:
            with suppress(OSError):
                draft.unlink()
            raise _cannot(self.path, error) from error
        return record

    def close(self) -> None:
        """Forget the record: the evaluation ended."""
        self.path.unlink(missing_ok=True)

    def description(self) -> str:
        """Say what is under way."""
        record = self.read()
        if record is None:
            return "it has just started"
        step = record.candidate.get("step")
        return f"step {step}, since {record.started_at}, now at '{record.step}' (pid {record.pid})"


def _cannot(path: Path, error: OSError) -> CannotCreateError:
    return CannotCreateError(
        f"cannot keep the record of this evaluation: {error.strerror}",
        where=str(path),
        hint="free space, or set XDG_STATE_HOME to a writable folder",
    )
