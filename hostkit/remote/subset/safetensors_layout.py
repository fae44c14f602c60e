"""Lay out a smaller safetensors file with only the wanted tensors of a larger one.

Travels to hosts: standard library only, Python 3.8 or newer. The format has no checksums: what comes is read once
before, so that each tensor has a CRC by which the receiver proves it and goes on where a copy was cut.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any

from checkpoint import completeness
from checkpoint import keys as checkpoint_keys
from checkpoint.formats import WIDTHS
from subset.crcs import Sums
from subset.layout import Layout, Piece, SelectError


class SafetensorsLayout(Layout):
    """The output, laid out. `keys`: names of tensors, or what stands before a dot in them."""

    def _lay(self, path: str) -> None:
        header = completeness.safetensors_header(path)
        start = 8 + struct.unpack("<Q", completeness.read_part(path, 0, 8))[0]
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        wanted = self._wanted(entries)
        # the widest first, as the format's own writer has them: each then stands at a multiple of its width
        places = {
            name: (-WIDTHS.get(entry["dtype"], 0), entry["data_offsets"]) for name, entry in wanted.items()
        }
        order = sorted(wanted, key=lambda name: places[name])
        made: dict[str, Any] = {"__metadata__": header["__metadata__"]} if "__metadata__" in header else {}
        for name in order:
            begin, end = wanted[name]["data_offsets"]
            made[name] = dict(wanted[name], data_offsets=[self.wanted_bytes, self.wanted_bytes + end - begin])
            self.wanted_bytes += end - begin
        text = json.dumps(made, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
        text += b" " * (-len(text) % 8)
        self._literal(struct.pack("<Q", len(text)) + text, "header")
        descriptor = completeness.open_regular(path)
        try:
            with Sums(descriptor, self.selection.rate) as sums:
                for name in order:
                    begin, end = wanted[name]["data_offsets"]
                    if end > begin:
                        self._data(name, start + begin, end - begin, sums)
        finally:
            os.close(descriptor)

    def _data(self, name: str, at: int, size: int, sums: Sums) -> None:
        if name not in self.selection.summed:
            self.selection.summed[name] = sums.of(at, size)
        self.pieces.append(Piece(self.size, size, self.selection.summed[name], name, None, at))
        self.size += size
        self.unrecorded += 1

    def _wanted(self, entries: dict[str, Any]) -> dict[str, Any]:
        tops = list(dict.fromkeys(name.partition(".")[0] for name in entries))
        keys = self.selection.keys
        if keys is None:
            self.kept = tops
            return entries
        found: dict[str, Any] = {}
        for key in keys:
            for through in ((), (*checkpoint_keys.WRAPPERS, *self.selection.strip)):
                mine = [name for name in entries if key and _below(name, key, through)]
                if mine:
                    break
            else:
                told = "no tensor below %r; there are: %s" % (key, ", ".join(tops[:40]))
                raise SelectError("missing-key", told, keys=tops)
            found.update((name, entries[name]) for name in mine)
            self.kept.append(key)
        self.dropped = [top for top in tops if not any(name.partition(".")[0] == top for name in found)]
        return found


def _below(name: str, key: str, through: tuple[str, ...]) -> bool:
    met = checkpoint_keys.meet(name, key, through)
    return met is not None and not met[1]
