"""Lay out a smaller torch file with only the wanted keys of a larger one: byte for byte, before a byte is read.

Travels to hosts: standard library only, Python 3.8 or newer.

The layout is that of torch's own writer (PyTorchStreamWriter on miniz), since a loader may compute the places of
storages instead of looking them up. It depends on nothing but the source's identity and the keys, so that a copy
that was cut goes on at any byte. Every byte of it is covered by a CRC: `pieces` follow each other without a gap.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib

from checkpoint import contents, torch_zip
from checkpoint import keys as checkpoint_keys
from checkpoint.keys import MissingError, Picked
from checkpoint.torch_zip import Archive
from subset.crcs import Sums
from subset.layout import Layout, Piece, SelectError, Selection
from subset.pickle_writer import PickleWriter

ALIGNMENT = 64
WIDE = 0xFFFFFFFF
SMALL = 1 << 16  # records beside pickle and storages: version, byte order, …


class TorchLayout(Layout):
    """The output, laid out as torch's own writer does."""

    def _lay(self, path: str) -> None:
        with Archive(path) as archive, Sums(archive.descriptor, self.selection.rate) as sums:
            writer, made = self._selected(archive, self.selection)
            self._write(archive, writer, made, sums)

    def _selected(self, archive: Archive, selection: Selection) -> tuple[PickleWriter, bytes]:
        tree = torch_zip.tree(archive)
        if contents.pairs_of(tree.root) is None:
            raise SelectError("missing-key", "it has no keys: it is one object", keys=[])
        keys = selection.keys
        if keys is not None and not all(keys):
            there = [key for key, _ in tree.top()]
            raise SelectError(
                "missing-key", "a key without a name; there are: %s" % ", ".join(there[:40]), keys=there
            )
        if keys is not None and selection.step is not None:
            keys = [*keys, *([selection.step] if selection.step not in keys else [])]
        try:
            picked = Picked(tree, keys, selection.strip, selection.exactly)
        except MissingError as why:
            raise SelectError("missing-key", str(why), keys=why.there) from None
        if selection.harness and selection.keys:
            checkpoint_keys.for_harness(
                picked, selection.keys, selection.step, selection.strip, selection.step_inside
            )
        self.kept, self.dropped = picked.kept, picked.dropped
        writer = PickleWriter()
        made = writer.pickle(picked.out)
        foreign = contents.foreign(writer.globals)
        if foreign:
            raise SelectError("unsafe", "the wanted keys need %s" % ", ".join(foreign), unsafe=foreign)
        writer.forget()
        return writer, made

    def _write(self, archive: Archive, writer: PickleWriter, made: bytes, sums: Sums) -> None:
        top, directory = archive.top, []
        byteorder = b"little"
        if top + "byteorder" in archive.records:
            byteorder = archive.read(top + "byteorder", SMALL)
        storages = sorted(writer.storages.items(), key=lambda item: item[1])
        self.wanted_bytes = sum(writer.sizes.values())
        begin: list[tuple[str, bytes | str]] = [("data.pkl", made), (".format_version", b"1")]
        begin += [(".storage_alignment", b"%d" % ALIGNMENT), ("byteorder", byteorder)]
        begin += [("data/%d" % number, top + "data/" + key) for key, number in storages]
        stamp = hashlib.sha256(made + json.dumps(self.identity).encode()).hexdigest()
        serial = b"%040d" % (int(stamp, 16) % 10**40)
        for name, content in [*begin, ("version", b"3\n"), (".data/serialization_id", serial)]:
            directory.append(self._record(archive, sums, (top + name).encode("utf-8", "replace"), content))
        self._end(directory)

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
                if content not in self.selection.summed:
                    self.selection.summed[content] = sums.of(offset, size)
                crc = self.selection.summed[content]
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


def _wide(size: int, at: int) -> bytes:
    """Return the zip64 extra field; empty where 32 bits do."""
    values = ([size, size] if size >= WIDE else []) + ([at] if at >= WIDE else [])
    return struct.pack("<2H%dQ" % len(values), 1, 8 * len(values), *values) if values else b""
