"""Take whole files from the stream, block by block with its CRC, where rsync cannot; and go on at the exact byte.

Travels to hosts: standard library only, Python 3.8 or newer. The counterpart of send_files. The files count as
one stretch of bytes, in their order.
"""

from __future__ import annotations

import os
import zlib
from typing import IO, Any

from transfer import protocol, verify_files

SUMMED = (
    16 << 20
)  # of a format without CRCs, what is here is held against the source in stretches of so many bytes


class Files:
    """The partial files below a folder."""

    def __init__(self, folder: str, request: dict[str, Any]) -> None:
        self.folder = folder
        self.request = request
        self.files: list[dict[str, Any]] = request["files"]
        self.size = sum(one["size"] for one in self.files)
        self.at = 0
        self.open: tuple[int, int] | None = None  # (number of the file, descriptor)

    def close(self) -> None:
        """Close what is open."""
        if self.open is not None:
            os.close(self.open[1])
            self.open = None

    def resume(self) -> dict[str, Any]:
        """Return how many bytes are here without a gap; and their CRCs, where the format itself has none."""
        self.at = 0
        for one in self.files:
            try:
                here = os.lstat(os.path.join(self.folder, one["name"])).st_size
            except OSError:
                here = 0
            self.at += min(here, one["size"])
            if here < one["size"]:
                break
        sums = [] if self.request["format"] == "torch-zip" else self._sums(self.at)
        return {"at": self.at, "summed": SUMMED, "sums": sums}

    def _sums(self, end: int) -> list[int]:
        sums: list[int] = []
        crc = inside = 0
        for one in self.files:
            left = min(one["size"], end)
            end -= left
            if not left:
                continue
            with open(os.path.join(self.folder, one["name"]), "rb", buffering=0) as file:
                while left:
                    block = file.read(min(left, SUMMED - inside, 1 << 20))
                    if not block:
                        return sums
                    crc, inside, left = zlib.crc32(block, crc), inside + len(block), left - len(block)
                    if inside == SUMMED:
                        sums.append(crc)
                        crc = inside = 0
        return [*sums, crc] if inside else sums

    def take(self, stream: IO[bytes]) -> dict[str, Any]:
        """Take what comes behind the marker; return the sender's last word, or what is damaged."""
        self.at = int(protocol.trailer(stream)["from"])  # it may begin earlier than what is here
        for size, crc, parts in protocol.blocks(stream, checked=True):
            if self.at + size > self.size:
                return {"damaged": "more bytes than were planned"}
            seen = 0
            for part in parts:
                seen = zlib.crc32(part, seen)
                self._write(part)
            if seen != crc:
                return {"damaged": "a block's checksum does not match"}
        return {"trailer": protocol.trailer(stream)}

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            number, offset = self._place()
            if self.open is None or self.open[0] != number:
                self.close()
                path = os.path.join(self.folder, self.files[number]["name"])
                os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self.open = number, os.open(path, flags, 0o600)
                os.ftruncate(self.open[1], offset)
                os.lseek(self.open[1], offset, os.SEEK_SET)
            part = view[: self.files[number]["size"] - offset]
            protocol.write(self.open[1], part)
            self.at += len(part)
            view = view[len(part) :]

    def _place(self) -> tuple[int, int]:
        offset = self.at
        for number, one in enumerate(self.files):
            if offset < one["size"]:
                return number, offset
            offset -= one["size"]
        raise AssertionError

    def proof(self) -> dict[str, Any]:
        """Return what proves each file; or what is damaged."""
        self.close()
        for one in self.files:
            if one["size"] == 0:  # no block ever came for it
                path = os.path.join(self.folder, one["name"])
                os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        return verify_files.proof(self.folder, self.request)
