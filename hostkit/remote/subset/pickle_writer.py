"""Write symbols back as a pickle that torch's safe loader reads (protocol 2), its storages numbered anew.

Travels to hosts: standard library only, Python 3.8 or newer. The counterpart of checkpoint/pickle_reader.
"""

from __future__ import annotations

import struct
from typing import Any

from checkpoint.contents import ITEM, Storage
from checkpoint.pickle_reader import Call, Dict, Global, Persistent, PickleError, Set

MAX_DEPTH = 200
BATCH = 1000


class PickleWriter:
    """One pickle being written. `storages` maps the keys of the source to their new numbers, in order of use."""

    def __init__(self) -> None:
        self.out = bytearray(b"\x80\x02")  # small pieces in a list would take ten times the memory
        self.memo: dict[Any, int] = {}
        self.held: list[Any] = []  # keeps what the memo knows by id() alive
        self.open: set[int] = set()
        self.globals: list[Global] = []  # every name that was written
        self.storages: dict[str, int] = {}
        self.sizes: dict[str, int] = {}

    def pickle(self, value: Any) -> bytes:
        """Return the whole pickle of a value."""
        self.write(value, 0)
        return bytes(self.out + b".")

    def forget(self) -> None:
        """Let go of what was only needed to write: it keeps the whole tree in memory."""
        self.out.clear()
        self.memo.clear()
        self.held.clear()

    def write(self, value: Any, depth: int) -> None:
        """Write one value, or a reference to where it was written before."""
        if depth > MAX_DEPTH:
            raise PickleError("its pickle is nested too deep to be written again")
        if value is None or isinstance(value, (bool, int, float)):
            self.out += _number(value)
            return
        place: Any = ("text", value) if isinstance(value, str) else id(value)
        if isinstance(value, Global):
            place = ("global", value.module, value.name)
        if place in self.memo:
            number = self.memo[place]
            self.out += b"h" + bytes([number]) if number < 256 else b"j" + struct.pack("<I", number)
            return
        if id(value) in self.open:
            raise PickleError("its pickle refers to itself")
        self.open.add(id(value))
        self.fresh(value, place, depth + 1)
        self.open.discard(id(value))

    def remember(self, place: Any, value: Any) -> None:
        """Give the top of the stack a number, so that it can be referred to."""
        number = self.memo[place] = len(self.memo)
        self.held.append(value)
        self.out += b"q" + bytes([number]) if number < 256 else b"r" + struct.pack("<I", number)

    def fresh(self, value: Any, place: Any, depth: int) -> None:
        """Write a value that was not written before."""
        if isinstance(value, str):
            raw = value.encode("utf-8", "surrogatepass")
            self.out += b"X" + struct.pack("<I", len(raw)) + raw
            self.remember(place, value)
        elif isinstance(value, Global):
            self.globals.append(value)
            self.out += b"c%s\n%s\n" % (value.module.encode(), value.name.encode())
            self.remember(place, value)
        elif isinstance(value, tuple):
            self.tuple(value, place, depth)
        elif isinstance(value, list):
            self.out += b"]"
            self.remember(place, value)
            self.items(value, depth)
        elif isinstance(value, (Dict, dict)):
            self.out += b"}"
            self.remember(place, value)
            self.pairs(value.pairs if isinstance(value, Dict) else list(value.items()), depth)
        elif isinstance(value, Set):
            self.write(Global("__builtin__", "set"), depth)
            self.write((list(value.items),), depth)
            self.out += b"R"
            self.remember(place, value)
        elif isinstance(value, bytes):
            self.write(Call(Global("_codecs", "encode"), (value.decode("latin1"), "latin1")), depth)
        elif isinstance(value, Persistent):
            self.reference(value, depth)
        elif isinstance(value, Call):
            self.call(value, place, depth)
        else:
            raise PickleError("a %s cannot be written again" % type(value).__name__)

    def tuple(self, value: Any, place: Any, depth: int) -> None:
        """Write a tuple."""
        if not value:
            self.out += b")"
            return
        if len(value) > 3:
            self.out += b"("
        for one in value:
            self.write(one, depth)
        self.out += b"t" if len(value) > 3 else (b"\x85", b"\x86", b"\x87")[len(value) - 1]
        self.remember(place, value)

    def items(self, items: Any, depth: int) -> None:
        """Append items to the list on the stack."""
        for start in range(0, len(items), BATCH):
            self.out += b"("
            for one in items[start : start + BATCH]:
                self.write(one, depth)
            self.out += b"e"

    def pairs(self, pairs: Any, depth: int) -> None:
        """Set entries of the dictionary on the stack."""
        for start in range(0, len(pairs), BATCH):
            self.out += b"("
            for key, one in pairs[start : start + BATCH]:
                self.write(key, depth)
                self.write(one, depth)
            self.out += b"u"

    def reference(self, value: Persistent, depth: int) -> None:
        """Write a reference to a storage, under its new number."""
        storage = Storage(value.reference)
        number = self.storages.setdefault(storage.key, len(self.storages))
        self.sizes[storage.key] = storage.bytes
        reference = list(value.reference)
        reference[2] = str(number)
        reference[4] = storage.bytes // ITEM[storage.dtype]
        self.write(tuple(reference), depth)
        self.out += b"Q"

    def call(self, value: Call, place: Any, depth: int) -> None:
        """Write an object: what makes it, its arguments, and what is put into it."""
        self.write(value.function, depth)
        self.write(value.args, depth)
        self.out += b"\x81" if value.new else b"R"
        self.remember(place, value)
        self.items(value.items, depth)
        self.pairs(value.pairs, depth)
        if value.state is not None:
            self.write(value.state, depth)
            self.out += b"b"


def _number(value: Any) -> bytes:
    if value is None:
        return b"N"
    if isinstance(value, bool):
        return b"\x88" if value else b"\x89"
    if isinstance(value, float):
        return b"G" + struct.pack(">d", value)
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if 0 <= value < 65536:
        return b"M" + struct.pack("<H", value)
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    raw: bytes = value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True)
    if len(raw) > 255:
        raise PickleError("a number of %d bits cannot be written again" % value.bit_length())
    return b"\x8a" + bytes([len(raw)]) + raw
