"""The destination's side of staging: room, one copy at a time, proof, the final name, what is kept.

Travels to hosts: standard library only, Python 3.8 or newer.

    <folder>/<name>/                 a staged checkpoint: its files, and manifest.json; by rename, so whole or absent
    <folder>/.staging/<name>/        one on its way
    <folder>/.staging/<name>.lock    held (flock) by the process that copies, and by its rsync

ops: prepare (looks only), receive (rsync, then proof), pull (a selection), publish (final name), prove (a staged
one, again), progress, discard. A reply with `refused` says in one word why not, and `what` in a sentence.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import stat
import subprocess
import time
from typing import Any

import completeness
import receiver_keep
import receiver_pull
import torchzip_inspect
import torchzip_verify

NEEDS = ("completeness", "receiver_keep", "receiver_pull", "torchzip_inspect", "torchzip_verify")

MANIFEST = "manifest.json"
TAIL = 4000  # characters of rsync's complaints that are kept


class RefusedError(Exception):
    """The request cannot be granted; `code` is the reply's `refused`."""

    def __init__(self, code: str, what: str, **more: Any) -> None:
        super().__init__(what)
        self.code = code
        self.more = more


class Place:
    """Where one checkpoint is staged."""

    def __init__(self, folder: str, name: str) -> None:
        if not name or "/" in name or name.startswith("."):
            raise RefusedError("usage", "%r is no name for a staged checkpoint" % name)
        self.folder = folder
        self.name = name
        self.final = os.path.join(folder, name)
        self.staging = os.path.join(folder, ".staging")
        self.partial = os.path.join(self.staging, name)
        self.lock = self.partial + ".lock"

    def manifest(self) -> dict[str, Any] | None:
        """Return the manifest of the staged checkpoint; None when there is none."""
        try:
            with open(os.path.join(self.final, MANIFEST), encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

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
                    return dict(json.loads(file.read() or b"{}"), held=True)
        except ValueError:
            return {"held": True}
        except OSError:
            return None


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


class Claim:
    """The lock on one place. A child that is given `number` holds it as well, also after our own death."""

    def __init__(self, place: Place) -> None:
        try:
            os.makedirs(place.staging, mode=0o700, exist_ok=True)
            self.number = os.open(place.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise RefusedError(
                "cannot-create", "%s: %s" % (error.filename or place.folder, error.strerror)
            ) from None
        for attempt in range(20):
            try:
                fcntl.flock(self.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:  # perhaps only somebody who looks whether it is free: that takes no time
                if attempt == 19:
                    os.close(self.number)
                    raise RefusedError(
                        "busy", "another command is copying it", holder=place.holder() or {}
                    ) from None
                time.sleep(0.02)
        note = json.dumps({"pid": os.getpid(), "since": time.time()}).encode()
        os.ftruncate(self.number, 0)
        os.pwrite(self.number, note, 0)

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *_: object) -> None:
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


def prepare(place: Place, request: dict[str, Any]) -> dict[str, Any]:
    """Look at everything that a plan needs to know. Writes nothing."""
    going = []
    if "keep" in request:
        of = (place.folder, place.name, request["run"], request["keep"], request.get("state"))
        going = receiver_keep.going(*of)
    return {
        "going": going,
        "tools": torchzip_inspect.tools(),
        "room": room(place.folder),
        "arrived": place.arrived(),
        "holder": place.holder(),
        "staged": place.manifest(),
        "path": place.final,
    }


def _need_room(place: Place, size: int, files: int) -> None:
    found = room(place.folder)
    need = size - place.arrived()
    if need > 0 and need + found["reserve"] > found["free"]:
        raise RefusedError("space", "not enough space", need=need, **found)
    if found["inodes"] is not None and found["inodes"] < files + 8:
        raise RefusedError("space", "not enough inodes", need=need, **found)
    if not found["writable"]:
        raise RefusedError("cannot-create", "no permission to write in %s" % found["folder"])


def receive(place: Place, request: dict[str, Any]) -> dict[str, Any]:
    """Copy with the given rsync, then prove what came. Nothing is at the final name yet."""
    files = request["files"]
    _humble()
    with Claim(place) as claim:
        _need_room(place, sum(one["size"] for one in files), len(files))
        os.makedirs(place.partial, mode=0o700, exist_ok=True)
        for one in completeness.payload(place.partial):
            if os.path.islink(one):
                os.unlink(one)  # rsync --append would write through it
        before = place.arrived()
        done = subprocess.run(
            [*request["argv"], place.partial + "/"],
            input=os.fsencode(request["names"]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(claim.number,),
            preexec_fn=receiver_pull.end_with_us(),  # noqa: PLW1509  (our other thread only waits)
            check=False,
            env=dict(os.environ, LC_ALL="C.UTF-8"),
        )
        said = done.stderr[-TAIL:].decode("utf-8", "replace")
        reply: dict[str, Any] = {"exit": done.returncode, "said": said, "resumed_at": before}
        if done.returncode == 0:
            reply.update(_proof(place, request))
        return reply


def pull(place: Place, request: dict[str, Any]) -> dict[str, Any]:
    """Take a selection that a program on the source sends, each piece proven as it comes. Not at the final name yet."""
    _humble()
    with Claim(place) as claim:
        _need_room(place, request["plan"]["size"], 1)
        os.makedirs(place.partial, mode=0o700, exist_ok=True)
        return receiver_pull.pull(os.path.join(place.partial, request["entry"]), request, claim.number)


def _proof(place: Place, request: dict[str, Any]) -> dict[str, Any]:
    proofs = []
    for one in request["files"]:
        path = os.path.join(place.partial, one["name"])
        try:
            look = os.lstat(path)
        except OSError:
            return {"damaged": "%s did not arrive" % one["name"]}
        if not stat.S_ISREG(look.st_mode):
            return {"damaged": "%s arrived as something else than a regular file" % one["name"]}
        if look.st_size != one["size"]:
            return {"damaged": "%s has %d of %d bytes" % (one["name"], look.st_size, one["size"])}
        try:
            # the source's format decides: a damaged head must not turn the check of CRCs off
            crcs = request["format"] == "torch-zip" or (
                look.st_size and completeness.sniff(path) == "torch-zip"
            )
            found = torchzip_verify.prove(path, bool(crcs))
        except torchzip_verify.DamagedError as why:
            return {"damaged": "%s: %s" % (one["name"], why)}
        torchzip_verify.flush(path)
        proofs.append(dict(found, name=one["name"], mtime_ns=look.st_mtime_ns, inode=look.st_ino))
    return {"proofs": proofs}


def publish(place: Place, request: dict[str, Any]) -> dict[str, Any]:
    """Give it its final name, with its manifest, if it is still what was proven; then let older ones go."""
    manifest = request["manifest"]
    with Claim(place):
        for one in manifest["files"]:
            look = os.lstat(os.path.join(place.partial, one["name"]))
            if (look.st_size, look.st_mtime_ns, look.st_ino) != (one["size"], one["mtime_ns"], one["inode"]):
                raise RefusedError("damaged", "%s changed after it was proven" % one["name"])
        manifest["staged_at"] = time.time()
        path = os.path.join(place.partial, MANIFEST)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(manifest, file, indent=1)
        torchzip_verify.flush(path)
        torchzip_verify.flush(place.partial)
        if os.path.isdir(place.final):  # an unproven one: aside, and its bytes go unless somebody reads them
            aside = "%s.old-%d" % (place.partial, time.time_ns())
            os.rename(place.final, aside)
            if not receiver_keep.users(place.final, aside, request.get("state")):
                shutil.rmtree(aside, ignore_errors=True)
        os.rename(place.partial, place.final)
        torchzip_verify.flush(place.folder)
        removed = receiver_keep.prune(
            place.folder, place.name, str(manifest["run"]), request["keep"], request.get("state")
        )
    return {"path": place.final, "removed": removed, "manifest": manifest}


def prove(place: Place) -> dict[str, Any]:
    """Read a staged checkpoint again and hold it against its manifest."""
    manifest = place.manifest()
    if manifest is None:
        return {"proven": False, "reason": "no manifest"}
    _humble()
    for one in manifest.get("files", []):
        path = os.path.join(place.final, one["name"])
        try:
            if not stat.S_ISREG(os.lstat(path).st_mode):
                return {"proven": False, "reason": "%s is no regular file" % one["name"]}
            found = torchzip_verify.prove(path, False)
        except OSError as error:
            return {"proven": False, "reason": "%s: %s" % (one["name"], error.strerror)}
        if found["sha256"] != one["sha256"]:
            return {"proven": False, "reason": "%s no longer has its SHA-256" % one["name"]}
    return {"proven": True, "reason": None, "manifest": manifest}


def discard(place: Place) -> dict[str, Any]:
    """Throw a partial copy away."""
    with Claim(place):
        shutil.rmtree(place.partial, ignore_errors=True)
    return {"discarded": True}


def _humble() -> None:
    """Take the lowest place for CPU and disk; in its own session also for the kernel's group of it."""
    for act in (lambda: os.nice(19), _autogroup):
        try:
            act()
        except OSError:
            continue
    ionice = torchzip_inspect.tools()["ionice"]
    if ionice:
        subprocess.run([ionice, "-c3", "-p", str(os.getpid())], check=False, stderr=subprocess.DEVNULL)


def _autogroup() -> None:
    with open("/proc/self/autogroup", "w", encoding="ascii") as file:
        file.write("19")


def serve(request: dict[str, Any]) -> dict[str, Any]:
    """Answer one request."""
    try:
        place = Place(request["folder"], request["name"])
        op = request["op"]
        if op == "prepare":
            return prepare(place, request)
        if op == "progress":
            return {"arrived": place.arrived(), "holder": place.holder()}
        if op == "receive":
            return receive(place, request)
        if op == "pull":
            return pull(place, request)
        if op == "publish":
            return publish(place, request)
        if op == "prove":
            return prove(place)
        return discard(place)
    except RefusedError as why:
        return dict(why.more, refused=why.code, what=str(why))
    except OSError as error:
        code = "space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "cannot-create"
        return {"refused": code, "what": "%s: %s" % (error.filename or request["folder"], error.strerror)}
