"""CRCs of what has none recorded: read for the layout, before anything is sent.

Travels to hosts: standard library only, Python 3.8 or newer. Runs on the source, as slowly as it is told.
"""

from __future__ import annotations

import zlib

from host import page_cache


class Sums:
    """CRCs of records of one open file, by one reader: there may be a hundred thousand, and mostly there is none."""

    def __init__(self, descriptor: int, rate: int | None) -> None:
        self.descriptor = descriptor
        self.rate = rate
        self.reader: page_cache.CacheNeutralReader | None = None

    def __enter__(self) -> Sums:
        return self

    def __exit__(self, *_: object) -> None:
        if self.reader is not None:
            self.reader.close()

    def of(self, start: int, size: int) -> int:
        """Return the CRC of these bytes of the file."""
        self.reader = self.reader or page_cache.CacheNeutralReader(self.descriptor, self.rate)
        crc = 0
        for block in self.reader.blocks(start, size):
            crc = zlib.crc32(block, crc)
        return crc
