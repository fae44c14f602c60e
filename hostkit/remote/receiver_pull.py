"""Take a selection from the source piece by piece, prove each as it comes, and go on where an earlier one was cut.

Travels to hosts: standard library only, Python 3.8 or newer. The counterpart of torchzip_stream's wire.
"""

from __future__ import annotations

import base64
import ctypes
import hashlib
import json
import os
import signal
import struct
import subprocess
import tempfile
import zlib
from typing import IO, Any, Callable

NEEDS = ()

TAIL = 4000
NOISE = 1 << 20  # bytes that login shells may print before the marker
BLOCK = 64 << 20  # no block of the sender is larger


class Output:
    """The partial file, and what of it is proven: pieces (size, CRC, name) follow each other without a gap."""

    def __init__(self, path: str, pieces: list[list[Any]]) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self.pieces = pieces
        self.digest = hashlib.sha256()
        self.at = 0  # bytes of the output that are here
        self.number = 0  # the piece that is coming
        self.inside = 0  # bytes of it that are here
        self.crc = 0
        self.proven = 0

    def resume(self) -> int:
        """Keep what is here up to the end of the last good piece, and of a piece that is not all here."""
        good = (0, 0, hashlib.sha256())
        while self.number < len(self.pieces):
            block = os.read(self.descriptor, min(1 << 20, self.pieces[self.number][0] - self.inside))
            if not block:
                break
            before = self.number
            wrong = self.take(block)
            if wrong is not None:
                self.at, self.number, self.digest = good
                self.inside = self.crc = 0
                break
            if self.number != before:
                good = (self.at, self.number, self.digest.copy())
        os.ftruncate(self.descriptor, self.at)
        os.lseek(self.descriptor, self.at, os.SEEK_SET)
        return self.at

    def take(self, block: Any) -> str | None:
        """Count bytes in; return the name of a piece that they show to be damaged."""
        self.digest.update(block)
        view = memoryview(block)
        while view and self.number < len(self.pieces):
            size, crc, name = self.pieces[self.number]
            part = view[: size - self.inside]
            view = view[len(part) :]
            self.crc = zlib.crc32(part, self.crc)
            self.inside += len(part)
            self.at += len(part)
            if self.inside == size:
                if self.crc != crc:
                    return str(name) or "between two records"
                self.proven += 1 if name else 0
                self.number, self.inside, self.crc = self.number + 1, 0, 0
        return "more bytes than were planned" if view else None

    def write(self, block: Any) -> None:
        """Write bytes at the end."""
        view = memoryview(block)
        while view:
            view = view[os.write(self.descriptor, view) :]


def pull(path: str, request: dict[str, Any], lock: int) -> dict[str, Any]:
    """Run `argv` with `program` on its stdin, take what it sends; return proofs, or what is wrong."""
    output = Output(path, request["plan"]["pieces"])
    try:
        begin = output.resume()
        reply: dict[str, Any] = {"exit": 0, "said": "", "resumed_at": begin, "trailer": {"code": None}}
        if begin < request["plan"]["size"]:
            reply.update(_run(output, dict(request, begin=begin), lock))
        if reply["exit"] or "damaged" in reply or reply["trailer"]["code"]:
            return reply
        if output.at != request["plan"]["size"]:
            return dict(reply, damaged="%d of %d bytes came" % (output.at, request["plan"]["size"]))
        os.fsync(output.descriptor)
        look = os.fstat(output.descriptor)
        proof = {
            "name": request["entry"],
            "sha256": output.digest.hexdigest(),
            "size": output.at,
            "crc_proven": output.proven,
            "crc_unrecorded": request["plan"].get("crc_unrecorded", 0),
            "mtime_ns": look.st_mtime_ns,
            "inode": look.st_ino,
        }
        return dict(reply, proofs=[proof])
    finally:
        os.close(output.descriptor)


def _run(output: Output, request: dict[str, Any], lock: int) -> dict[str, Any]:
    program = base64.b64decode(request["program"]).replace(b"@BEGIN@", b"%d" % request["begin"])
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as given:
        given.write(program)
        given.seek(0)
        child = subprocess.Popen(
            request["argv"],
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=said,
            pass_fds=(lock,),
            preexec_fn=end_with_us(),  # noqa: PLW1509  (our other thread only waits for the caller's end)
            env=dict(os.environ, LC_ALL="C.UTF-8"),
        )
        assert child.stdout is not None
        reply: dict[str, Any] = {"damaged": "it was not taken to its end"}
        try:
            reply = _take(output, child.stdout, request["marker"].encode())
        finally:
            child.stdout.close()
            if "damaged" in reply:
                child.terminate()
            status = child.wait()
        said.seek(0, os.SEEK_END)
        said.seek(max(0, said.tell() - TAIL))
        reply["said"] = said.read().decode("utf-8", "replace")
        if (
            "damaged" not in reply and reply.get("trailer") is None
        ):  # it broke off: the status of ssh says why, or nothing does
            reply["exit"] = status or 12
            reply["trailer"] = {"code": None}
        return reply


def end_with_us() -> Callable[[], None]:
    """Return what a child does first, so that the kernel ends it when we end: nothing may write on for nobody."""
    prctl, me = getattr(ctypes.CDLL(None), "prctl", None), os.getpid()

    def ask() -> None:
        if prctl is not None:
            prctl(1, signal.SIGTERM)
        if os.getppid() != me:  # we ended before it was said
            os._exit(1)

    return ask


def _take(output: Output, stream: IO[bytes], marker: bytes) -> dict[str, Any]:
    noise = 0
    while True:
        line = stream.readline(NOISE)
        noise += len(line)
        if line.rstrip(b"\r\n") == marker:
            break
        if not line or noise > NOISE:
            return {"trailer": None}
    while True:
        head = stream.read(4)
        if len(head) < 4:
            return {"trailer": None}
        size = struct.unpack("<I", head)[0]
        if size == 0:
            try:
                return {"exit": 0, "trailer": json.loads(stream.readline())}
            except ValueError:
                return {"trailer": None}
        if size > BLOCK:
            return {"damaged": "something else than blocks came"}
        while size:
            block = stream.read(min(size, 1 << 20))
            if not block:
                return {"trailer": None}
            size -= len(block)
            output.write(block)
            wrong = output.take(block)
            if wrong is not None:
                return {"damaged": "record %s" % wrong if "record" not in wrong else wrong}
