"""Copy a selection to a file of this machine: `.part` first, which a later copy goes on with; then its name, whole.

Standard library only, Python 3.8 or newer. Used by hand alone; hostkit itself has a receiver where the copy comes to.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import zlib
from typing import Any, Iterator

from subset import stream
from subset.lay_out import lay_out
from subset.layout import Layout, SelectError
from transfer import protocol


def copy(
    path: str, target: str, keys: list[str] | None, exactly: bool, rate: int | None, **more: Any
) -> dict[str, Any]:
    """Write the selection; return what was seen, or `code` and `reason`. Nothing is at the name that is not whole."""
    return stream.guarded(lambda: _copy(path, target, keys, exactly, rate, **more))


def _copy(
    path: str, target: str, keys: list[str] | None, exactly: bool, rate: int | None, **more: Any
) -> dict[str, Any]:
    part = target + ".part"
    _check(path, target, part)
    layout = lay_out(path, keys, exactly, **more)
    with _mine(part) as out:
        begin = resumed = proven(part, layout)
        _room(target, part, layout)
        told = _write(layout, path, out, begin, rate)
        if begin:  # a record that was cut was read from there only: what lay there from before is proven now
            begin = proven(part, layout)
            if begin < layout.size:
                told = _write(layout, path, out, begin, rate)
        with _writing(target):
            os.rename(part, target)
            _flush(os.path.dirname(os.path.abspath(target)))
    said = {"kept": layout.kept, "dropped": layout.dropped, "wanted_bytes": layout.wanted_bytes}
    return dict(told, resumed_at=resumed, **said)


def _check(path: str, target: str, part: str) -> None:
    folder = os.path.dirname(os.path.abspath(target))
    if not os.path.isdir(folder):
        raise SelectError("target", "%s is no folder" % folder)
    source = os.stat(path)
    for name in (target, part):
        try:
            look = os.stat(name) if name == target else os.lstat(name)
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(look.st_mode):
            raise SelectError("target", "%s is there, and no regular file" % name)
        if (look.st_dev, look.st_ino) == (source.st_dev, source.st_ino):
            raise SelectError("target", "%s is the source itself" % name)


@contextlib.contextmanager
def _writing(name: str) -> Iterator[None]:
    """Tell the target's failures from the source's."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise SelectError("space" if full else "write", "%s: %s" % (name, error.strerror)) from None


@contextlib.contextmanager
def _mine(part: str) -> Iterator[int]:
    """Open the partial file, which no other copy may have at the same time."""
    with _writing(part):
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        out = os.open(part, flags, 0o600)
    try:
        try:
            fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SelectError("busy", "another copy writes %s" % part) from None
        yield out
    finally:
        with contextlib.suppress(OSError):
            if os.fstat(out).st_size == 0 and os.fstat(out).st_nlink:
                os.unlink(part)  # nothing came: nothing is left behind
        os.close(out)


def _room(target: str, part: str, layout: Layout) -> None:
    free = os.statvfs(os.path.dirname(os.path.abspath(target)))
    need = layout.size - os.stat(part).st_size
    room = free.f_bavail * free.f_frsize
    if need > room:
        raise SelectError("space", "%d bytes to write, %d free" % (need, room))


def _write(layout: Layout, path: str, out: int, begin: int, rate: int | None) -> dict[str, Any]:
    def sink(data: Any) -> None:
        with _writing("the copy"):
            protocol.write(out, data)

    with _writing("the copy"):
        os.ftruncate(out, begin)
        os.lseek(out, begin, os.SEEK_SET)
    told = stream.send(layout, path, sink, begin, rate)
    with _writing("the copy"):
        os.fsync(out)
    return told


def _flush(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def proven(part: str, layout: Layout) -> int:
    """Return up to where a partial output is what it should be: to the end of its last good piece, or its own end."""
    good = 0
    try:
        with open(part, "rb") as file:
            for piece in layout.pieces:
                crc, left = 0, piece.size
                while left:
                    block = file.read(min(left, 1 << 20))
                    if not block:
                        return piece.start + piece.size - left  # the whole record is proven at its end
                    crc, left = zlib.crc32(block, crc), left - len(block)
                if crc != piece.crc:
                    return good
                good = piece.start + piece.size
    except OSError:
        return 0
    return good
