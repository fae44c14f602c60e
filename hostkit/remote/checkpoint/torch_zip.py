"""An open torch zip on the host where it is: its records, their bytes, and the symbols of its pickle.

Travels to hosts: standard library only, Python 3.8 or newer. Reads little, and in small pieces.
"""

from __future__ import annotations

import os
import struct
import zlib

from checkpoint import completeness, contents
from checkpoint.completeness import IncompleteError, UnknownError
from checkpoint.pickle_reader import MAX_BYTES, PickleError

DESCRIPTORS = (12, 16, 20, 24)  # bytes after a record: CRC and sizes, with or without a mark, narrow or wide


class Archive:
    """An open torch zip: its records, found through the central directory, and their bytes."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.end = completeness.end_record(path)[2]
        self.records = {one.name.decode("utf-8", "replace"): one for one in completeness.directory(path)}
        pickles = [name for name in self.records if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise UnknownError("not understood: %d records called data.pkl" % len(pickles))
        self.top = pickles[0][: -len("data.pkl")]
        if self.top.startswith("/") or ".." in self.top.split("/") or not self.top.isprintable():
            raise UnknownError("not understood: its records stand outside of a folder: %r" % self.top[:100])
        self.descriptor = completeness.open_regular(path)
        if hasattr(os, "posix_fadvise"):  # small scattered reads: read-ahead would pull megabytes for each
            os.posix_fadvise(self.descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def begin(self, name: str) -> tuple[int, int, bool]:
        """Return where a record's bytes begin, how many they are, and whether a data descriptor follows."""
        raw, offset, size, _, method = self.records[name]
        if method:
            raise UnknownError("not understood: record %s is compressed" % name)
        head = os.pread(self.descriptor, 30 + len(raw), offset)
        if head[:4] != b"PK\3\4" or head[30:] != raw:
            raise IncompleteError("damaged archive: no record %s at byte %d" % (name, offset))
        flags, inside, name_length, extra_length = struct.unpack("<2H16x2H", head[6:30])
        if inside or flags & 1:
            raise UnknownError("not understood: record %s is compressed or encrypted" % name)
        return offset + 30 + name_length + extra_length, size, bool(flags & 8)

    def read(self, name: str, limit: int) -> bytes:
        """Return a small record, its CRC checked where the archive has one."""
        start, size, _ = self.begin(name)
        if size > limit:
            raise PickleError("record %s has %d bytes, more than the %d that are read" % (name, size, limit))
        data = os.pread(self.descriptor, size, start)
        crc = self.records[name].crc
        if len(data) != size or (crc and zlib.crc32(data) != crc):
            raise IncompleteError("damaged archive: record %s does not have its recorded CRC" % name)
        return data

    def tile(self) -> None:
        """Raise IncompleteError unless the records fill the archive exactly, each where its header says."""
        at, follows = 0, False
        for name, record in sorted(self.records.items(), key=lambda item: item[1].offset):
            if record.offset - at not in (DESCRIPTORS if follows else (0,)):
                raise IncompleteError("damaged archive: record %s is not where the one before it ends" % name)
            start, size, follows = self.begin(name)
            at = start + size
        if self.end - at not in (DESCRIPTORS if follows else (0,)):
            raise IncompleteError("damaged archive: its directory is not where its last record ends")


def tree(archive: Archive) -> contents.Tree:
    """Return the symbols of the archive's pickle, every storage of it held against its record."""
    found, reader = contents.load(archive.read(archive.top + "data.pkl", MAX_BYTES))
    for reference in reader.references:
        storage = contents.Storage(reference.reference)
        record = archive.records.get(archive.top + "data/" + storage.key)
        if record is None:
            raise IncompleteError("damaged archive: storage %s is missing" % storage.key)
        if record.size != storage.bytes:
            told = (storage.key, record.size, storage.bytes)
            raise IncompleteError("damaged archive: storage %s has %d of %d bytes" % told)
    return found


def legacy(path: str) -> contents.Tree:
    """Return the symbols of a legacy torch file, whose storages must then fill it exactly."""
    size = os.stat(path).st_size
    tree: contents.Tree | None = None
    storages: dict[str, int] = {}
    cap = 1 << 20
    while True:
        head = completeness.read_part(path, 0, min(cap, size))
        try:
            at = 0
            for number in range(5):  # magic number, protocol, machine, the object, the keys of its storages
                found, reader = contents.load(head, at)
                at = reader.at
                if number == 3:
                    tree, storages = found, {}
                    for reference in reader.references:
                        storage = contents.Storage(reference.reference)
                        storages[storage.key] = storage.bytes
            break
        except PickleError:
            if cap >= min(size, MAX_BYTES):
                raise
            cap *= 8
    promised = at + sum(8 + one for one in storages.values())
    if promised != size:
        raise IncompleteError("truncated: its storages need %d bytes, it has %d" % (promised, size))
    assert tree is not None
    return tree
