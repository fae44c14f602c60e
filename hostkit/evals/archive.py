"""The archive of results: plain folders and files on this machine; nothing in it is ever replaced.

    <archive>/<eval>/step_4000_20261130T101500Z_1a2b3c4d/
        result.json  comparison.json  plan.json  provenance.json  log.txt
        verdict-before.json  verdict-after.json

A folder is filled under a name that starts with a dot and renamed when it is whole, so whatever stands
under a final name is complete. Several machines may share an archive.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from hostkit.errors import CannotCreateError, DataError
from hostkit.evals.results import EvalResult, dump, parse

_LEFT = 3600.0  # seconds after which a folder that has no final name is left over
_FOLDER = re.compile(r"step_(\d+|unknown)_\d{8}T\d{6}Z_[0-9a-f]{8}")


@dataclass(frozen=True)
class Entry:
    """One archived result and the folder that it stands in."""

    folder: Path
    result: EvalResult

    @property
    def order(self) -> tuple[int, str]:
        """Step first, then time: an older checkpoint that is evaluated late is still the older one."""
        step = self.result.checkpoint.step
        return (step if step is not None else -1, self.result.created_at)

    @property
    def whole(self) -> bool:
        """Whether every prompt that was asked for is in it."""
        return self.result.status == "complete" and not self.result.coverage.partial

    @property
    def label(self) -> str:
        return f"step {self.result.checkpoint.step} of {self.result.created_at}"


class Archive:
    """The results of one evaluation."""

    def __init__(self, root: str | Path, evaluation: str) -> None:
        self.folder = Path(root) / evaluation

    def entries(self) -> tuple[list[Entry], list[str]]:
        """Return all results in order of step and time, and a line for each folder that is not readable."""
        found, broken = [], []
        for folder in sorted(self.folder.glob("step_*")) if self.folder.is_dir() else []:
            if not _FOLDER.fullmatch(folder.name):
                continue
            path = folder / "result.json"
            try:
                found.append(Entry(folder, parse(read_regular(path), where=str(path))))
            except (OSError, DataError) as error:
                broken.append(f"left out: {error}")
        return sorted(found, key=lambda entry: entry.order), broken

    def with_id(self, evaluation_id: str) -> Entry | None:
        """Return the newest whole result of this checkpoint and these settings."""
        found = [entry for entry in self.entries()[0] if entry.result.id == evaluation_id]
        whole = [entry for entry in found if entry.whole]
        return max(whole or found, key=lambda entry: entry.result.created_at, default=None)

    def before(self, result: EvalResult) -> Entry | None:
        """Return the result to compare with: the nearest step at or below this one's, else the newest."""
        others = [entry for entry in self.entries()[0] if entry.result.id != result.id]
        step = result.checkpoint.step
        below = [e for e in others if step is not None and (e.result.checkpoint.step or 0) <= step]
        if below:
            return max(below, key=lambda entry: entry.order)
        return max(others, key=lambda entry: entry.result.created_at, default=None)

    def add(self, result: EvalResult, files: Mapping[str, bytes]) -> Path:
        """File a result with what belongs to it, whole or not at all, and return its folder.

        One that is filed already (by a command that was cut right after) is not filed twice.
        """
        data = dump(result.document())
        for entry in self.entries()[0]:
            if entry.result.id == result.id and dump(entry.result.document()) == data:
                return entry.folder
        stamp = re.sub(r"[-:]|\.\d+|\+00:00$|Z$", "", result.created_at)[:15] + "Z"
        step = result.checkpoint.step if result.checkpoint.step is not None else "unknown"
        name = f"step_{step}_{stamp}_{token_hex(4)}"
        if not _FOLDER.fullmatch(name):
            raise DataError(f"created_at {result.created_at!r} is no UTC time", where="result.json")
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft = self.folder / f".{name}"
            draft.mkdir(mode=0o700)
            self._clear_left(draft.stat().st_mtime)
            try:
                for file, data in files.items():
                    _write(draft / file, data)
                _sync(draft)
                draft.rename(self.folder / name)
                _sync(self.folder)
            except BaseException:
                shutil.rmtree(draft, ignore_errors=True)
                raise
        except OSError as error:
            raise _cannot(self.folder, error) from error
        return self.folder / name

    def _clear_left(self, now: float) -> None:
        """Remove what a command that was killed amid filing has left; `now` is the time by the archive's own clock.

        Another machine may be filing at this moment, which takes seconds: only what is old is left over.
        """
        for draft in self.folder.glob(".step_*"):
            if _FOLDER.fullmatch(draft.name[1:]):
                try:
                    old = now - draft.stat().st_mtime > _LEFT
                except FileNotFoundError:
                    continue  # it has got its name
                if old:
                    shutil.rmtree(draft, ignore_errors=True)


def read_regular(path: Path) -> bytes:
    """Read a regular file; anything else (a fifo would block for ever) is a DataError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise DataError("not a regular file", where=str(path))
        return file.read()


def add_later(folder: Path, file: str, data: bytes) -> None:
    """Add one more file to an archived result; one that is there already stays as it is."""
    draft = folder / f".{file}.{token_hex(4)}"
    try:
        try:
            _write(draft, data)
            os.link(draft, folder / file)
        except FileExistsError:
            pass
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise _cannot(folder, error) from error


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cannot(folder: Path, error: OSError) -> CannotCreateError:
    return CannotCreateError(
        f"cannot write the archive: {error.strerror}",
        where=str(folder),
        hint="free space or fix permissions; the result is kept on the evaluation host, so run the command again",
    )
