"""Lay out a smaller torch file with only the wanted keys of a larger one: byte for byte, before a byte is read.

Travels to hosts: standard library only, Python 3.8 or newer.

The layout is that of torch's own writer (PyTorchStreamWriter on miniz), since a loader may compute the places of
storages instead of looking them up. It depends on nothing but the source's identity and the keys, so that a copy
that was cut goes on at any byte. Every byte of it is covered by a CRC: `pieces` follow each other without a gap.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from typing import Any

from checkpoint import completeness, contents, torch_zip
from checkpoint import keys as checkpoint_keys
from checkpoint.completeness import IncompleteError
from checkpoint.keys import MissingError, Picked
from checkpoint.torch_zip import Archive
from subset.crcs import Sums
from subset.pickle_writer import Emitter

ALIGNMENT = 64
WIDE = 0xFFFFFFFF
SMALL = 1 << 16  # records beside pickle and storages: version, byte order, …


class SelectError(Exception):
    """The keys cannot be taken out of it; `code` says why in one word."""

    def __init__(self, code: str, what: str, **more: Any) -> None:
        super().__init__(what)
        self.code = code
        self.more = more


class Asked:
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

    def __init__(self, path: str, asked: Asked) -> None:
        self.pieces: list[Piece] = []
        self.size = 0
        self.dropped: list[str] = []
        self.kept: list[str] = []
        self.asked = asked
        self.wanted_bytes = 0
        self.unrecorded = 0
        self.identity = identity(path)
        self._lay(path)

    def _lay(self, path: str) -> None:
        with Archive(path) as archive, Sums(archive.descriptor, self.asked.rate) as sums:
            emitter, made = self._selected(archive, self.asked)
            self._write(archive, emitter, made, sums)

    def _selected(self, archive: Archive, asked: Asked) -> tuple[Emitter, bytes]:
        tree = torch_zip.tree(archive)
        if contents.pairs_of(tree.root) is None:
            raise SelectError("missing-key", "it has no keys: it is one object", keys=[])
        keys = asked.keys
        if keys is not None and not all(keys):
            there = [key for key, _ in tree.top()]
            raise SelectError(
                "missing-key", "a key without a name; there are: %s" % ", ".join(there[:40]), keys=there
            )
        if keys is not None and asked.step is not None:
            keys = [*keys, *([asked.step] if asked.step not in keys else [])]
        try:
            picked = Picked(tree, keys, asked.strip, asked.exactly)
        except MissingError as why:
            raise SelectError("missing-key", str(why), keys=why.there) from None
        if asked.harness and asked.keys:
            checkpoint_keys.for_harness(picked, asked.keys, asked.step, asked.strip, asked.step_inside)
        self.kept, self.dropped = picked.kept, picked.dropped
        emitter = Emitter()
        made = emitter.pickle(picked.out)
        foreign = contents.foreign(emitter.globals)
        if foreign:
            raise SelectError("unsafe", "the wanted keys need %s" % ", ".join(foreign), unsafe=foreign)
        emitter.forget()
        return emitter, made

    def _write(self, archive: Archive, emitter: Emitter, made: bytes, sums: Sums) -> None:
        top, directory = archive.top, []
        byteorder = b"little"
        if top + "byteorder" in archive.records:
            byteorder = archive.read(top + "byteorder", SMALL)
        storages = sorted(emitter.storages.items(), key=lambda item: item[1])
        self.wanted_bytes = sum(emitter.sizes.values())
        begin: list[tuple[str, bytes | str]] = [("data.pkl", made), (".format_version", b"1")]
        begin += [(".storage_alignment", b"%d" % ALIGNMENT), ("byteorder", byteorder)]
        begin += [("data/%d" % number, top + "data/" + key) for key, number in storages]
        stamp = hashlib.sha256(made + json.dumps(self.identity).encode()).hexdigest()
        serial = b"%040d" % (int(stamp, 16) % 10**40)
        for name, content in [*begin, ("version", b"3\n"), (".data/serialization_id", serial)]:
            directory.append(self._record(archive, sums, (top + name).encode("utf-8", "replace"), content))
        self._end(directory)

    def _literal(self, data: bytes, name: str = "") -> None:
        self.pieces.append(Piece(self.size, len(data), zlib.crc32(data), name, data, 0))
        self.size += len(data)

    def _record(
        self, archive: Archive, sums: Sums, name: bytes, content: bytes | str
    ) -> tuple[bytes, int, int, int, int]:
        """Write one record: header, padding to the alignment, payload, descriptor."""
        at, offset, size = self.size, 0, len(content)
        if isinstance(content, bytes):
            crc = zlib.crc32(content)
        else:
            offset, size, _ = archive.begin(content)
            crc = archive.records[content].crc
            if (
                size and not crc
            ):  # torch's compute_crc32=False records none: read twice, so that what comes has one
                self.unrecorded += 1
                if content not in self.asked.summed:
                    self.asked.summed[content] = sums.of(offset, size)
                crc = self.asked.summed[content]
        wide = _wide(size, at)
        flags = 0x0808 if size else 0x0800
        start = at + 30 + len(name) + len(wide) + 4
        padding = -start % ALIGNMENT
        extra = wide + b"FB" + struct.pack("<H", padding) + b"Z" * padding
        self._literal(
            struct.pack("<4s5H3L2H", b"PK\3\4", 0, flags, 0, 0, 0, 0, 0, 0, len(name), len(extra))
            + name
            + extra
        )
        if isinstance(content, bytes):
            self._literal(content, name.decode("utf-8", "replace"))
        elif size:
            self.pieces.append(Piece(self.size, size, crc, content, None, offset))
            self.size += size
        if size:
            self._literal(struct.pack("<4sLQQ" if wide else "<4sLLL", b"PK\7\10", crc, size, size))
        return name, flags, at, crc, size

    def _end(self, directory: list[tuple[bytes, int, int, int, int]]) -> None:
        out = []
        for name, flags, at, crc, size in directory:
            extra = _wide(size, at)
            fields = (
                b"PK\1\2",
                0,
                0,
                flags,
                0,
                0,
                0,
                crc,
                min(size, WIDE),
                min(size, WIDE),
                len(name),
                len(extra),
            )
            out.append(
                struct.pack("<4s6H3L2H", *fields)
                + struct.pack("<3H2L", 0, 0, 0, 0, min(at, WIDE))
                + name
                + extra
            )
        raw, count, start = b"".join(out), len(directory), self.size
        after = start + len(raw)
        wide = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 0x031E, 0x002D, 0, 0, count, count, len(raw), start)
        locator = struct.pack("<4sLQL", b"PK\6\7", 0, after, 1)
        few = min(count, 0xFFFF)
        end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, few, few, min(len(raw), WIDE), min(start, WIDE), 0)
        self._literal(raw + wide + locator + end)

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
            "keys": self.asked.keys,
            "asked": self.asked.document(),
            "kept": self.kept,
            "dropped": self.dropped,
            "identity": self.identity,
            "pieces": pieces,
            "summed": self.asked.summed,
            "digest": stamp.hexdigest(),
        }


def _wide(size: int, at: int) -> bytes:
    """Return the zip64 extra field; empty where 32 bits do."""
    values = ([size, size] if size >= WIDE else []) + ([at] if at >= WIDE else [])
    return struct.pack("<2H%dQ" % len(values), 1, 8 * len(values), *values) if values else b""


def identity(path: str, descriptor: int | None = None) -> dict[str, int]:
    """Return what tells the file from a later one under its name."""
    look = os.stat(path) if descriptor is None else os.fstat(descriptor)
    return {"size": look.st_size, "mtime_ns": look.st_mtime_ns, "inode": look.st_ino}


def more_of(request: dict[str, Any]) -> dict[str, Any]:
    """Return what a request says of the selection besides its keys."""
    names = ("step", "strip", "harness", "rate", "step_inside", "summed")
    return {key: request[key] for key in names if key in request}


def lay_out(path: str, keys: list[str] | None, exactly: bool = False, **more: Any) -> Layout:
    """Return the layout for a whole file. Raises SelectError, IncompleteError, PickleError, OSError.

    What may be asked for is said at `Asked`.
    """
    seen = completeness.examine(path)
    if not seen["complete"]:
        raise IncompleteError(str(seen["reason"]))
    if seen["format"] == "safetensors":
        from subset import safetensors_layout  # which knows of us

        return safetensors_layout.SafetensorsLayout(path, Asked(keys, exactly, **more))
    if seen["format"] != "torch-zip":
        told = "keys can be taken out of torch zip and safetensors files only, not of %s" % seen["format"]
        raise SelectError("layout", told)
    return Layout(path, Asked(keys, exactly, **more))
