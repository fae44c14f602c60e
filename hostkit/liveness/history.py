"""What is remembered of each run on this machine: one append-only file a run, which may be deleted at any time.

One JSON object a line: an observation, or {"reader": NAME, "shown": observation}, which is how far one reader has got.
The file is bounded; what of it cannot be read is no memory, and a place that cannot be written costs the memory alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from hostkit.directories import state_directory
from hostkit.errors import CannotCreateError
from hostkit.inventory.models import Inventory
from hostkit.liveness.history_key import digest, digest_of_0_1
from hostkit.liveness.past import Past, PastObservation

PERSON = "train-status"  # the reader that a person at a terminal is
MAX_BYTES = 512 << 10  # of a file; then its older half goes
RECENT = 64  # observations that are read
THIN = 5.0  # seconds in which an observation that shows no other state is not kept
LOCK_SECONDS = 1.0


class _Position(BaseModel):
    """How far one reader has got: the observation that it was last shown."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    reader: str
    shown: PastObservation


class History:
    """The file of one run. Commands may read and write it at the same time."""

    def __init__(self, path: Path, single: Path | None = None) -> None:
        """`single`: the file of one last observation that version 0.1 kept; read where `path` is not there yet."""
        self.path = path
        self.single = single

    @classmethod
    def of(cls, inventory: Inventory, run: str) -> History:
        """Return a run's file. Runs of one name in two inventories have two, since their routes or paths differ."""
        folder = state_directory(create=False) / "liveness"
        single = folder / f"{run}-{digest_of_0_1(inventory, run)}.json"
        return cls(folder / f"{run}-{digest(inventory, run)}.jsonl", single)

    def read(self, reader: str | None = None) -> Past:
        """Return the newest observations, and what `reader` was last shown."""
        observations: list[PastObservation] = []
        shown: PastObservation | None = None
        for line in reversed(self._lines()):
            position = line.startswith(b'{"reader"')
            if (position and (reader is None or shown)) or (not position and len(observations) == RECENT):
                continue
            with contextlib.suppress(ValidationError):
                if not position:
                    observations.append(PastObservation.model_validate_json(line))
                elif (found := _Position.model_validate_json(line)).reader == reader:
                    shown = found.shown
        return Past(tuple(reversed(observations)), shown)

    def append(self, past: Past, observation: PastObservation, reader: str | None = None) -> None:
        """Remember an observation that follows on `past`, and that `reader` was shown it."""
        new = (
            [] if past.last is not None and _same(past.last, observation) else [observation.model_dump_json()]
        )
        if reader is not None:
            new.append(_Position(reader=reader, shown=observation).model_dump_json())
        if new:
            self._write("\n".join(new))

    def _lines(self) -> list[bytes]:
        lines = _read(self.path).split(b"\n")
        if lines == [b""] and self.single is not None:
            lines = self._of_single()
        return [line for line in lines if line]

    def _of_single(self) -> list[bytes]:
        """Return what version 0.1 remembered: one observation, which its one reader had been shown."""
        text = _read(self.single) if self.single else b""
        try:
            observation = PastObservation.model_validate_json(text)
        except ValidationError:
            return []
        position = _Position(reader=PERSON, shown=observation)
        return [observation.model_dump_json().encode(), position.model_dump_json().encode()]

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, CannotCreateError), self._locked() as descriptor:
            size = os.fstat(descriptor).st_size
            new = text.encode() + b"\n"
            if size == 0:
                new = b"".join(line + b"\n" for line in self._lines()) + new
            elif os.pread(descriptor, 1, size - 1) != b"\n":  # a writer was ended amid a line
                new = b"\n" + new
            os.write(descriptor, new)
            if size + len(new) > MAX_BYTES:
                self._shrink()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """Open the file for appending, under a kernel lock. Raises OSError where that takes too long."""
        state_directory()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        end = time.monotonic() + LOCK_SECONDS
        while True:
            descriptor = os.open(self.path, flags, 0o600)
            try:
                mode = os.fstat(descriptor).st_mode
                if not stat.S_ISREG(mode):
                    raise OSError(f"{self.path} is no regular file")
                if mode & 0o077:
                    os.fchmod(descriptor, 0o600)
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    # else another command has replaced it meanwhile
                    if os.path.samestat(os.fstat(descriptor), self.path.stat()):
                        yield descriptor
                        return
            finally:
                os.close(descriptor)
            if time.monotonic() > end:
                raise OSError(f"{self.path} is locked")
            time.sleep(0.005)

    def _shrink(self) -> None:
        """Drop the older half, but no reader's newest position. The caller holds the lock."""
        lines = self._lines()
        kept, size, full, readers = [], 0, False, set()
        for line in reversed(lines):
            reader = None
            if line.startswith(b'{"reader"'):
                with contextlib.suppress(ValidationError):
                    reader = _Position.model_validate_json(line).reader
                if reader is None or reader in readers:
                    continue
                readers.add(reader)
            elif full := full or size + len(line) > MAX_BYTES // 2:
                continue
            size += len(line) + 1
            kept.append(line)
        draft = self.path.with_name(f".{self.path.name}-{os.getpid()}")  # the lock makes it ours
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.writelines(line + b"\n" for line in reversed(kept))
            draft.replace(self.path)
        except OSError:
            draft.unlink(missing_ok=True)
            raise


def _same(last: PastObservation, now: PastObservation) -> bool:
    """Whether an observation follows so soon, and shows so little new, that a series is as good without it."""
    soon = 0 <= now.at - last.at < THIN
    return soon and (last.verdict, last.identity) == (now.verdict, now.identity)


def _read(path: Path) -> bytes:
    """Return the end of a file; nothing where there is none, or none that can be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            return b""
        return os.pread(descriptor, 2 * MAX_BYTES, max(0, facts.st_size - 2 * MAX_BYTES))
    except OSError:
        return b""
    finally:
        os.close(descriptor)
