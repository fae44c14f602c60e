"""Take a selection of a torch file piece by piece, prove each as it comes, and go on where an earlier one was cut.

Travels to hosts: standard library only, Python 3.8 or newer. The counterpart of send_subset.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from typing import IO, Any

from transfer import protocol


class Selection:
    """The partial file, and what of it is proven: pieces (size, CRC, name) follow each other without a gap."""

    def __init__(self, path: str, request: dict[str, Any]) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self.request = request
        self.pieces: list[list[Any]] = request["plan"]["pieces"]
        self.size: int = request["plan"]["size"]
        self.digest = hashlib.sha256()
        self.at = 0  # bytes of the output that are here
        self.number = 0  # the piece that is coming
        self.inside = 0  # bytes of it that are here
        self.crc = 0
        self.proven = 0

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)

    def resume(self) -> int:
        """Keep what is here up to the end of the last good piece, and of a piece that is not all here."""
        good = (0, 0, hashlib.sha256())
        while self.number < len(self.pieces):
            block = os.read(self.descriptor, min(1 << 20, self.pieces[self.number][0] - self.inside))
            if not block:
                break
            before = self.number
            wrong = self._count(block)
            if wrong is not None:
                self.at, self.number, self.digest = good
                self.inside = self.crc = 0
                break
            if self.number != before:
                good = (self.at, self.number, self.digest.copy())
        os.ftruncate(self.descriptor, self.at)
        os.lseek(self.descriptor, self.at, os.SEEK_SET)
        return self.at

    def take(self, stream: IO[bytes]) -> dict[str, Any]:
        """Take what comes behind the marker; return the sender's last word, or what is damaged."""
        for _, _, parts in protocol.blocks(stream):
            for part in parts:
                protocol.write(self.descriptor, part)
                wrong = self._count(part)
                if wrong is not None:
                    return {"damaged": "record %s" % wrong if "record" not in wrong else wrong}
        return {"trailer": protocol.trailer(stream)}

    def proof(self) -> dict[str, Any]:
        """Return what proves the whole; or what is missing."""
        if self.at != self.size:
            return {"damaged": "%d of %d bytes came" % (self.at, self.size)}
        os.fsync(self.descriptor)
        look = os.fstat(self.descriptor)
        proof = {
            "name": self.request["entry"],
            "sha256": self.digest.hexdigest(),
            "size": self.at,
            "crc_proven": self.proven,
            "crc_unrecorded": self.request["plan"].get("crc_unrecorded", 0),
            "mtime_ns": look.st_mtime_ns,
            "inode": look.st_ino,
        }
        return {"proofs": [proof]}

    def _count(self, block: Any) -> str | None:
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
