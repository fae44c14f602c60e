"""What every layout of a smaller checkpoint is: pieces that follow each other without a gap, each with its CRC.

Travels to hosts: standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from typing import Any


class SelectError(Exception):
    """The keys cannot be taken out of it; `code` says why in one word."""

    def __init__(self, code: str, what: str, **more: Any) -> None:
        super().__init__(what)
        self.code = code
        self.more = more


class Selection:
    """What is taken out of a file, as a request says it.

    `keys`: keys, or names with dots that lead to them, whose tensors are wanted; None: every key that holds
    tensors. What holds none comes as plain data, or only the named ones with `exactly`. `step`: where the step
    stands, which comes too. `strip`: prefixes of wrappers in names, besides the usual. `harness`: have the weights
    also where the bundled harness looks for them.
    """

    def __init__(
        self,
        keys: list[str] | None,
        exactly: bool = False,
        *,
        step: str | None = None,
        strip: tuple[str, ...] = (),
        harness: bool = False,
        rate: int | None = None,
        step_inside: int | None = None,
        summed: dict[str, int] | None = None,
    ) -> None:
        self.keys = keys
        self.exactly = exactly
        self.step = step
        self.strip = tuple(strip)
        self.harness = harness
        self.step_inside = step_inside  # as it was read, where it is saved as a tensor
        self.rate = rate  # of what is read for the layout: bytes a second at most
        self.summed = dict(
            summed or {}
        )  # CRCs that an earlier layout has read for: nothing is read for them again

    def document(self) -> dict[str, Any]:
        """Return it as a request says it."""
        names = ("step", "strip", "harness", "step_inside")
        return {name: getattr(self, name) for name in names}


class Piece:
    """Consecutive bytes of the output: literal ones, or a stretch of the source."""

    __slots__ = ("crc", "literal", "name", "offset", "size", "start")

    def __init__(
        self, start: int, size: int, crc: int, name: str, literal: bytes | None, offset: int
    ) -> None:
        self.start = start  # in the output
        self.size = size
        self.crc = crc
        self.name = name  # of the source's record; "" for what lies between records
        self.literal = literal
        self.offset = offset  # in the source


class Layout:
    """The output, laid out."""

    def __init__(self, path: str, selection: Selection) -> None:
        self.pieces: list[Piece] = []
        self.size = 0
        self.dropped: list[str] = []
        self.kept: list[str] = []
        self.selection = selection
        self.wanted_bytes = 0
        self.unrecorded = 0
        self.identity = identity(path)
        self._lay(path)

    def _lay(self, path: str) -> None:
        """Append the pieces. Raises SelectError, PickleError, OSError."""
        raise NotImplementedError

    def _literal(self, data: bytes, name: str = "") -> None:
        self.pieces.append(Piece(self.size, len(data), zlib.crc32(data), name, data, 0))
        self.size += len(data)

    def document(self) -> dict[str, Any]:
        """Return the plan as the receiver needs it; `digest` tells two layouts apart."""
        pieces = [[piece.size, piece.crc, piece.name] for piece in self.pieces]
        stamp = hashlib.sha256(json.dumps([self.identity, pieces]).encode())
        for piece in self.pieces:
            stamp.update(piece.literal or b"")
        return {
            "size": self.size,
            "wanted_bytes": self.wanted_bytes,
            "crc_unrecorded": self.unrecorded,
            "keys": self.selection.keys,
            "asked": self.selection.document(),
            "kept": self.kept,
            "dropped": self.dropped,
            "identity": self.identity,
            "pieces": pieces,
            "summed": self.selection.summed,
            "digest": stamp.hexdigest(),
        }


def identity(path: str, descriptor: int | None = None) -> dict[str, int]:
    """Return what tells the file from a later one under its name."""
    look = os.stat(path) if descriptor is None else os.fstat(descriptor)
    return {"size": look.st_size, "mtime_ns": look.st_mtime_ns, "inode": look.st_ino}


def more_of(request: dict[str, Any]) -> dict[str, Any]:
    """Return what a request says of the selection besides its keys."""
    names = ("step", "strip", "harness", "rate", "step_inside", "summed")
    return {key: request[key] for key in names if key in request}
