"""Prove a copied file in one pass over its bytes: SHA-256 of all of it, and each record's CRC where it has them.

Travels to hosts: standard library only, Python 3.8 or newer. Runs where the copy is, never on the source.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from typing import Any

from checkpoint.completeness import IncompleteError
from checkpoint.torch_zip import Archive

BLOCK = 1 << 20


class DamagedError(Exception):
    """The bytes are not those that were saved; the message names the record."""


def prove(path: str, torch_zip: bool) -> dict[str, Any]:
    """Return sha256, size, and how many records had their CRC proven; raises DamagedError.

    torch itself never checks these CRCs when it loads: this is the only check that anybody makes.
    """
    spans = _spans(path) if torch_zip else []
    digest, size, proven, unrecorded = hashlib.sha256(), 0, 0, 0
    current = crc = 0
    with open(path, "rb", buffering=0) as file:
        for block in iter(lambda: file.read(BLOCK), b""):
            digest.update(block)
            at, size = size, size + len(block)
            while current < len(spans) and spans[current][0] < size:
                start, end, wanted, name = spans[current]
                crc = zlib.crc32(block[max(0, start - at) : end - at], crc)
                if end > size:
                    break
                if wanted == 0 and end > start:
                    unrecorded += 1  # torch's compute_crc32=False writes 0 everywhere
                elif crc != wanted:
                    raise DamagedError("record %s does not have its recorded CRC" % name)
                else:
                    proven += 1
                current, crc = current + 1, 0
    if current < len(spans):
        raise DamagedError("record %s is not all there" % spans[current][3])
    return {"sha256": digest.hexdigest(), "size": size, "crc_proven": proven, "crc_unrecorded": unrecorded}


def _spans(path: str) -> list[tuple[int, int, int, str]]:
    """Return where each record's bytes begin and end, with its CRC and name, by position."""
    try:
        with Archive(path) as archive:
            archive.tile()
            found = []
            for name, record in archive.records.items():
                start, size, _ = archive.begin(name)
                if size:
                    found.append((start, start + size, record.crc, name))
                elif record.crc:
                    raise DamagedError("record %s is empty, and should not be" % name)
            return sorted(found)
    except IncompleteError as why:
        raise DamagedError(str(why)) from None


def flush(path: str) -> None:
    """Bring a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
