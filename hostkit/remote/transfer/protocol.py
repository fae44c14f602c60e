"""What travels between the ends of a copy: a marker behind what shells print, blocks, and the receiver's answers.

Travels to hosts: standard library only, Python 3.8 or newer.

Bytes to the receiver: the marker's line, then blocks, each after its length in four bytes; a block of length 0 ends
them, and one line of JSON follows. Back from it: the marker's line, then frames, each after its length in four bytes:
`j` and a JSON document, `d` and bytes of rsync's; one of length 0 only says that somebody is there.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import struct
from typing import IO, Any, Iterator

NOISE = 1 << 20  # bytes that login shells may print before the marker
BLOCK = 64 << 20  # no block is larger
PART = 1 << 20
LINE = 1 << 20  # no line of JSON is longer
BROKEN = 12  # the status of a copy whose stream broke, as rsync's own
F_SETPIPE_SZ = 1031


def write(descriptor: int, data: Any) -> None:
    """Write all of the data."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def found(stream: IO[bytes], marker: bytes) -> bool:
    """Read up to the marker's line; say whether it came."""
    noise = 0
    while noise <= NOISE:
        line = stream.readline(NOISE)
        noise += len(line)
        if line.rstrip(b"\r\n") == marker:
            return True
        if not line:
            return False
    return False


def frame(kind: bytes, payload: bytes) -> bytes:
    """Return one frame."""
    return struct.pack("<I", len(payload) + 1) + kind + payload


def frames(stream: IO[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Return the frames (kind, payload) that come, until the stream ends."""
    while True:
        head = stream.read(4)
        if len(head) < 4:
            return
        size = struct.unpack("<I", head)[0]
        if size > BLOCK:
            return
        body = stream.read(size) if size else b""
        if len(body) < size:
            return
        if body:
            yield body[:1], body[1:]


def document(stream: IO[bytes]) -> Any:
    """Return the next JSON document among the frames; None when there is none."""
    for kind, payload in frames(stream):
        if kind == b"j":
            return json.loads(payload)
    return None


def widen(descriptor: int) -> None:
    """Let a pipe hold a megabyte, where it is one: a tenth of the turns that writer and reader take."""
    with contextlib.suppress(OSError):  # no pipe, or above what this account may have
        fcntl.fcntl(descriptor, F_SETPIPE_SZ, PART)


def blocks(stream: IO[bytes], *, checked: bool = False) -> Iterator[tuple[int, int, Iterator[Any]]]:
    """Return (length, CRC or 0, its bytes as they come) of each block, up to the last (length 0).

    Bytes are valid until the next are asked for.
    """
    buffer = memoryview(bytearray(PART))  # one for all: the kernel would clear the pages of each new one
    while True:
        head = stream.read(8 if checked else 4)
        if len(head) < (8 if checked else 4):
            raise CutError
        size, crc = struct.unpack("<II" if checked else "<I", head) + (() if checked else (0,))
        if size == 0:
            return
        if size > BLOCK:
            raise OddError
        yield size, crc, _parts(stream, size, buffer)


def _parts(stream: Any, size: int, buffer: memoryview) -> Iterator[Any]:
    fill = getattr(stream, "readinto", None)
    while size:
        if fill is not None:
            part = buffer[: fill(buffer[:size])]
        else:
            part = stream.read(min(size, PART))
        if not part:
            raise CutError
        size -= len(part)
        yield part


def trailer(stream: IO[bytes]) -> Any:
    """Return the sender's next word, a line of JSON; empty ones only say that it is there."""
    line = b"\n"
    while line == b"\n":
        line = stream.readline(LINE)
    try:
        return json.loads(line)
    except ValueError:
        raise CutError from None


class CutError(Exception):
    """The stream ends before its end."""


class OddError(Exception):
    """What comes is no block."""
