"""Send a laid-out selection from the source: any byte onwards, every record's CRC checked on the way.

Travels to hosts: standard library only, Python 3.8 or newer. Writes nothing on the source.
"""

from __future__ import annotations

import errno
import os
import sys
import zlib
from typing import Any, Callable

from checkpoint import completeness
from checkpoint.completeness import IncompleteError
from checkpoint.formats import GARBLED
from checkpoint.pickle_reader import PickleError
from host import page_cache
from subset.lay_out import lay_out
from subset.layout import Layout, Piece, SelectError, identity

SMALL = 64 << 10
LARGE = 1 << 20
NEAR = 8192  # pieces that one read is looked for in
GAP = 256  # bytes between two storages next to each other: a descriptor, a header, padding

Sink = Callable[[Any], None]


class CrcError(Exception):
    """A record does not have its recorded CRC; the message names it."""


def plan(path: str, keys: list[str] | None, exactly: bool = False, **more: Any) -> dict[str, Any]:
    """Return the layout's document; or `code` and `reason` why there is none."""
    return guarded(lambda: lay_out(path, keys, exactly, **more).document())


def guarded(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what the work returns, with `code` null; or the refusal's code and reason."""
    try:
        return dict(work(), code=None)
    except SelectError as why:
        return dict(why.more, code=why.code, reason=str(why))
    except CrcError as why:
        return {"code": "crc", "reason": str(why)}
    except IncompleteError as why:
        return {"code": "incomplete", "reason": str(why)}
    except PickleError as why:
        return {"code": "layout", "reason": str(why)}
    except FileNotFoundError:
        return {"code": "vanished", "reason": "vanished"}
    except BrokenPipeError:
        return {"code": "closed", "reason": "nobody reads any more"}
    except OSError as error:
        return {"code": "unreadable", "reason": str(error.strerror)}
    except MemoryError:  # of this machine: nothing is said about the checkpoint
        return {"code": "memory", "reason": "no memory is left to read it with"}
    except GARBLED as why:
        return {
            "code": "layout",
            "reason": "it makes no sense (%s: %s)" % (type(why).__name__, str(why)[:200]),
        }


def send(layout: Layout, path: str, sink: Sink, begin: int = 0, rate: int | None = None) -> dict[str, Any]:
    """Give the sink the output's bytes from `begin`; return what was seen of the source on the way.

    A record that `begin` cuts is read from there, and so proven by the receiver alone. Raises CrcError before the
    record's last bytes are given away, so that a whole output is a proven one.
    """
    descriptor = completeness.open_quietly(path)
    try:
        if identity(path, descriptor) != layout.identity:
            raise SelectError("changed", "the source changed")
        reader = page_cache.CacheNeutralReader(descriptor, rate)
        together = _Together(sink, min(LARGE, reader.step))
        try:
            for number, piece in enumerate(layout.pieces):
                skip = max(0, begin - piece.start)
                if skip >= piece.size:
                    continue
                if piece.literal is not None:
                    together.put(piece.literal[skip:])
                    continue
                if not reader.holds(piece.offset, piece.size):
                    reader.hold(piece.offset, _neighbours(layout.pieces, number) - piece.offset)
                _stretch(reader, piece, skip, together.put)
            together.flush()
        except CrcError:
            _unchanged(
                path, descriptor, layout
            )  # else what came is of two saves, and the disk is not at fault
            raise
        finally:
            reader.close()
        _unchanged(path, descriptor, layout)
        return {"replaced": _replaced(path, layout.identity), "read": reader.read_bytes, "size": layout.size}
    finally:
        os.close(descriptor)


def _unchanged(path: str, descriptor: int, layout: Layout) -> None:
    if identity(path, descriptor) != layout.identity and os.fstat(descriptor).st_nlink:
        raise SelectError("changed", "the source was written while it was read")


class _Together:
    """Gives small parts away together: headers, descriptors, and the many small tensors of some models."""

    def __init__(self, sink: Sink, most: int) -> None:
        self.sink = sink
        self.most = most
        self.held = bytearray()

    def put(self, data: Any) -> None:
        """Give data away now, if there is much of it, else with what comes."""
        if len(data) < SMALL:
            self.held += data
            if len(self.held) < self.most:
                return
            data = b""
        self.flush()
        if data:
            self.sink(data)

    def flush(self) -> None:
        """Give away what is held."""
        if self.held:
            self.sink(self.held)
            self.held = bytearray()


def _neighbours(pieces: list[Piece], number: int) -> int:
    """Return where the source's bytes end that are wanted next to each other, if they are small: one read for them."""
    first = pieces[number].offset
    end = first + pieces[number].size
    for piece in pieces[number + 1 : number + NEAR]:
        if piece.literal is None:
            if not 0 <= piece.offset - end <= GAP or piece.offset + piece.size - first > LARGE:
                break
            end = piece.offset + piece.size
    return end


def _stretch(reader: page_cache.CacheNeutralReader, piece: Piece, skip: int, sink: Sink) -> None:
    crc, left = 0, piece.size - skip
    for block in reader.blocks(piece.offset + skip, left):
        left -= len(block)
        if not skip:
            crc = zlib.crc32(block, crc)
            if left == 0 and crc != piece.crc:
                break
        sink(block)
    if left or (not skip and crc != piece.crc):
        raise CrcError("record %s does not have its recorded CRC" % piece.name)


def _replaced(path: str, before: dict[str, int]) -> bool:
    """Return whether the name now holds another file, or none: ours was read to its end all the same."""
    try:
        return identity(path)["inode"] != before["inode"]
    except OSError:
        return True


def write(descriptor: int, data: Any) -> None:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except BrokenPipeError:
        raise
    except OSError as error:  # not the source's
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise SelectError("space" if full else "write", str(error.strerror)) from None


def stream(
    path: str, keys: list[str] | None, exactly: bool, begin: int, rate: int | None, **more: Any
) -> dict[str, Any]:
    """Write the selection's bytes from `begin` to standard output."""

    def work() -> dict[str, Any]:
        if sys.stdout is None:
            raise BrokenPipeError
        out = sys.stdout.fileno()
        layout = lay_out(path, keys, exactly, **more)
        if not 0 <= begin <= layout.size:
            raise SelectError(
                "range", "%d is not within its %d bytes" % (begin, layout.size), size=layout.size
            )
        return send(layout, path, lambda data: write(out, data), begin, rate)

    return guarded(work)
