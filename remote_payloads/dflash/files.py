"""Files that are whole or absent: a temporary name, synced, renamed, the folder synced."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO


def write_durably(path: Path, content: bytes | Callable[[BinaryIO], None]) -> None:
    """Write bytes (or let a function write them) so that a kill leaves the old file or the new one.

    Failing (a full disk, no permission) it raises OSError with the file's name, and leaves nothing behind.
    """
    # A name that no other writer has: process ids repeat between containers that share a disk.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            kept = _FirstFault(file)
            try:
                if callable(content):
                    content(kept)  # type: ignore[arg-type]
                else:
                    kept.write(content)
                file.flush()
                os.fsync(file.fileno())
            except Exception:
                # Torch reports a full disk as a fault of its own; the disk's is the one that helps.
                if kept.fault is not None:
                    raise kept.fault from None
                raise
        temporary.replace(path)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        with suppress(OSError):  # mostly renamed by now; else there may not even be a folder
            temporary.unlink()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def claim(descriptor: int) -> bool | None:
    """Take the kernel's lock on an open file or folder, which its closing gives back; None where there are no locks.

    False: another process holds it.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def require_place(file: Path) -> None:
    """Raise now what writing `file` would raise later, after hours of work."""
    if file.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
    trial = file.with_name(f".{file.name}.{secrets.token_hex(4)}.trial")  # two at once may try the same place
    try:
        write_durably(trial, b"")
        trial.unlink()
    except OSError as error:
        error.filename = str(file)
        raise


class _FirstFault:
    """A file to write to that remembers the first fault of the system."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.fault: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return self._file.write(data)
        except OSError as error:
            self.fault = self.fault or error
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def write_json(path: Path, document: Any) -> None:
    """Strict JSON (no NaN), written durably."""
    write_durably(path, (json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode())
