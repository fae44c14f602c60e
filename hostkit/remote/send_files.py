"""Send whole files from the source, where rsync cannot: from any byte onwards, the page cache left as it was.

Travels to hosts: standard library only, Python 3.8 or newer. Writes nothing on the source. What the receiver has
already is held against the files only where their format has no CRCs of its own, as rsync would.
"""

from __future__ import annotations

import json
import os
import struct
import time
import zlib
from typing import Any, Iterator

from checkpoint import completeness
from host import page_cache
from subset import stream
from subset.layout import SelectError
from transfer import protocol

HERE_EVERY = 10.0  # seconds between two signs of life while nothing is sent


def answer(request: dict[str, Any]) -> None:
    """Answer a receiver: marker, where it begins, blocks with their CRC, one line of JSON."""
    out = os.dup(1)
    os.dup2(2, 1)
    protocol.write(out, ("\n" + request["marker"] + "\n").encode())
    told = stream.guarded(lambda: _send(out, request))
    if told["code"] != "closed":
        protocol.write(out, struct.pack("<II", 0, 0) + json.dumps(told).encode() + b"\n")


def _send(out: int, request: dict[str, Any]) -> dict[str, Any]:
    files = [(os.path.join(request["base"], one["name"]), one) for one in request["files"]]
    begin = request["begin"]
    try:
        for path, one in files:
            _same(os.stat(path), path, one)
        at = _agreed(out, files, begin, request.get("rate")) if begin["sums"] else begin["at"]
    except BaseException:
        protocol.write(out, b'{"from": 0}\n')
        raise
    protocol.write(out, json.dumps({"from": at}).encode() + b"\n")
    for block in _blocks(files, at, request.get("rate")):
        protocol.write(out, struct.pack("<II", len(block), zlib.crc32(block)))
        protocol.write(out, block)
    return {"replaced": False}


def _agreed(
    out: int, files: list[tuple[str, dict[str, Any]]], begin: dict[str, Any], rate: int | None
) -> int:
    """Return up to where the receiver has what is here; that may take long, so it hears meanwhile that we are at it."""
    told = time.monotonic()
    crc = inside = good = number = 0
    left = begin["at"]
    for block in _blocks(files, 0, rate):
        if time.monotonic() - told > HERE_EVERY:
            told = time.monotonic()
            protocol.write(out, b"\n")
        view = block[:left]
        left -= len(view)
        while view:
            part = view[: begin["summed"] - inside]
            view = view[len(part) :]
            crc, inside = zlib.crc32(part, crc), inside + len(part)
            if inside == begin["summed"] or (not left and not view):
                if number >= len(begin["sums"]) or begin["sums"][number] != crc:
                    return good
                good, number = good + inside, number + 1
                crc = inside = 0
        if not left:
            return good
    return good


def _blocks(files: list[tuple[str, dict[str, Any]]], begin: int, rate: int | None) -> Iterator[memoryview]:
    for path, one in files:
        if begin >= one["size"]:
            begin -= one["size"]
            continue
        descriptor = completeness.open_quietly(path)
        try:
            _same(os.fstat(descriptor), path, one)
            reader = page_cache.CacheNeutralReader(descriptor, rate)
            try:
                came = 0
                for block in reader.blocks(begin, one["size"] - begin):
                    came += len(block)
                    yield block
            finally:
                reader.close()
            if came != one["size"] - begin:
                raise SelectError("changed", "%s became shorter while it was read" % one["name"])
            _same(os.fstat(descriptor), path, one)
        finally:
            os.close(descriptor)
        begin = 0


def _same(look: os.stat_result, path: str, one: dict[str, Any]) -> None:
    if (look.st_size, look.st_mtime_ns) != (one["size"], one["mtime_ns"]):
        raise SelectError("changed", "%s changed after it was looked at" % os.path.basename(path))
