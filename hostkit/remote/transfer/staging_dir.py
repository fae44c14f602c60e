"""Where one checkpoint is staged: its names, the lock on it, who holds that, and the room there.

Travels to hosts: standard library only, Python 3.8 or newer.

    <folder>/<name>/                 a staged checkpoint: its files, and manifest.json; by rename, so whole or absent
    <folder>/.staging/<name>/        one on its way
    <folder>/.staging/<name>.lock    held (flock) by the process that copies, and by what it started for that; says
                                     what proves a finished copy until that has its final name, and goes then
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from typing import Any

from checkpoint import completeness
from checkpoint.formats import IncompleteError, inside, open_regular

MANIFEST = "manifest.json"
SCHEMA = "hostkit.staged/1"
_FIELDS = {
    "entry": str,
    "sha256": str,
    "method": str,
    "bytes": int,
    "step": int,
    "route": list,
    "files": list,
}


class RefusedError(Exception):
    """The request cannot be granted; `code` is the reply's `refused`."""

    def __init__(self, code: str, what: str, **more: Any) -> None:
        super().__init__(what)
        self.code = code
        self.more = more


class StagingSlot:
    """Where one checkpoint is staged."""

    def __init__(self, folder: str, name: str) -> None:
        if not name or "/" in name or name.startswith("."):
            raise RefusedError("usage", "%r is not a valid name for a staged checkpoint" % name)
        self.folder = folder
        self.name = name
        self.final = os.path.join(folder, name)
        self.staging = os.path.join(folder, ".staging")
        self.partial = os.path.join(self.staging, name)
        self.lock = self.partial + ".lock"

    def manifest(self) -> dict[str, Any] | None:
        """Return the manifest of the staged checkpoint; None when there is none that proves anything."""
        try:
            found = read_manifest(self.final)
        except (IncompleteError, OSError, ValueError, RecursionError):
            return None
        return found if _proves(found) else None

    def arrived(self) -> int:
        """Return how many bytes are here so far."""
        return (
            sum(_size(name) for name in completeness.payload(self.partial))
            if os.path.isdir(self.partial)
            else 0
        )

    def holder(self) -> dict[str, Any] | None:
        """Return who copies at this moment; None when nobody does."""
        try:
            with open(self.lock, "r+b") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    return None
                except OSError:
                    note = dict(json.loads(file.read() or b"{}"), held=True)
                    note.pop("copied", None)
                    return note
        except (ValueError, TypeError, RecursionError):  # not what we write
            return {"held": True}
        except OSError:
            return None


def read_manifest(folder: str) -> Any:
    """Return what the manifest in a folder says. Raises IncompleteError where it is a fifo or the like."""
    with os.fdopen(open_regular(os.path.join(folder, MANIFEST)), encoding="utf-8") as file:
        return json.load(file)


def _proves(found: Any) -> bool:
    """Whether it is a manifest as we write them: of another schema, or without files, it would prove nothing."""
    return (
        isinstance(found, dict)
        and found.get("schema") == SCHEMA
        and all(isinstance(found.get(key), kind) for key, kind in _FIELDS.items())
        and bool(found["files"])
        and all(
            isinstance(one, dict) and inside(one.get("name")) and isinstance(one.get("sha256"), str)
            for one in found["files"]
        )
    )


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


class Claim:
    """The lock on one slot. A child that is given `number` holds it as well, also after our own death.

    `copied`: what an earlier holder noted of a copy that it finished; None where there is none.
    """

    def __init__(self, slot: StagingSlot, tries: int = 20) -> None:
        self._path = slot.lock
        self._partial = slot.partial
        try:
            os.makedirs(slot.staging, mode=0o700, exist_ok=True)
            self.number = self._open()
        except OSError as error:
            raise RefusedError(
                "cannot-create", "%s: %s" % (error.filename or slot.folder, error.strerror)
            ) from None
        while not self._locked():
            tries -= 1
            if tries <= 0:
                os.close(self.number)
                raise RefusedError("busy", "another command is copying it", holder=slot.holder() or {})
            time.sleep(0.02)  # perhaps only somebody who looks whether it is free: that takes no time
        self.copied = self._note().get("copied")
        self.note(None)

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def _locked(self) -> bool:
        """Take the lock, and make sure that the file still has its name: a holder who is done removes it."""
        while True:
            try:
                fcntl.flock(self.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return False
            try:
                if os.path.samestat(os.fstat(self.number), os.lstat(self._path)):
                    return True
            except FileNotFoundError:
                pass
            os.close(self.number)
            self.number = self._open()

    def _note(self) -> dict[str, Any]:
        try:
            note = json.loads(os.pread(self.number, os.fstat(self.number).st_size, 0) or b"{}")
        except (ValueError, RecursionError):
            return {}
        return note if isinstance(note, dict) else {}

    def note(self, copied: dict[str, Any] | None) -> None:
        """Write who holds it, and what proves the copy once that is finished."""
        document: dict[str, Any] = {"pid": os.getpid(), "since": time.time()}
        if copied is not None:
            document["copied"] = copied
        os.ftruncate(self.number, 0)
        os.pwrite(self.number, json.dumps(document).encode(), 0)

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *_: object) -> None:
        """Let go; the lock's file goes too where nothing is on its way under this name any more."""
        if not os.path.lexists(self._partial):
            try:
                os.unlink(self._path)
            except OSError:
                pass  # it stays, as any lock that nobody holds
        os.close(self.number)


def room(folder: str) -> dict[str, Any]:
    """Return free bytes and inodes where the folder is or will be, and whether we may write there."""
    there = folder
    while not os.path.isdir(there) and there != "/":
        there = os.path.dirname(there)
    disk = os.statvfs(there)
    total = disk.f_blocks * disk.f_frsize
    return {
        "free": disk.f_bavail * disk.f_frsize,
        "reserve": min(1 << 30, total // 100),  # stays free for others: this host may be somebody's way in
        "inodes": disk.f_favail if disk.f_files else None,  # btrfs counts none
        "writable": os.access(there, os.W_OK | os.X_OK),
        "folder": there,
    }


def need_room(slot: StagingSlot, size: int, files: int) -> None:
    """Refuse what does not fit, before a byte moves."""
    found = room(slot.folder)
    need = size - slot.arrived()
    if need > 0 and need + found["reserve"] > found["free"]:
        raise RefusedError("space", "not enough space", need=need, **found)
    if found["inodes"] is not None and found["inodes"] < files + 8:
        raise RefusedError("space", "not enough inodes", need=need, **found)
    if not found["writable"]:
        raise RefusedError("cannot-create", "no permission to write in %s" % found["folder"])
