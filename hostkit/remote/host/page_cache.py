"""Read stretches of a file and leave the page cache as it was: what others had in memory stays, what we pulled goes.

Travels to hosts: standard library only, Python 3.8 or newer. Residency is asked of cachestat(2) (Linux 6.5), else of
mincore(2); where neither tells, nothing is dropped, since that could take pages away from the run.
"""

from __future__ import annotations

import mmap
import os
import sys
import time
from typing import Any, Iterator

from host import process

BLOCK = 1 << 20  # fits a cache, so that what is read is still there to be summed and written
LEAST = 16 << 10
AHEAD = 8  # blocks that the kernel is asked for before they are read
FOREIGN = 64 << 10  # a block with less than this in memory was nobody's
_CACHESTAT = 451  # on every architecture since the numbers were made equal


class CacheNeutralReader:
    """Reads blocks of one file. Give `rate` (bytes a second) to be slower than the disk."""

    def __init__(self, descriptor: int, rate: int | None = None) -> None:
        self.descriptor = descriptor
        self.rate = rate
        # a slow reader takes small bites: a block that takes a minute would come as one burst
        self.step = min(BLOCK, max(LEAST, rate // 4 // LEAST * LEAST)) if rate else BLOCK
        self.behind: list[tuple[int, int]] = []
        self.buffer = bytearray(self.step)
        self.began = time.monotonic()
        self.read_bytes = 0
        self.held = (0, 0)  # the stretch that the buffer holds
        # read-ahead would pull megabytes that nobody wants, beyond each stretch: we say ourselves what comes next
        _advise(descriptor, 0, 0, "POSIX_FADV_RANDOM")
        self.resident = _residency(descriptor)

    def holds(self, start: int, length: int) -> bool:
        """Whether a stretch was read already with one before it."""
        return self.held[0] <= start and start + length <= self.held[1]

    def hold(self, start: int, length: int) -> None:
        """Read a short stretch, of which parts are asked for next; a longer one is left for then."""
        self.held = (0, 0)
        if length <= self.step:
            for block in self._blocks(start, length):
                self.held = (start, start + len(block))

    def blocks(self, start: int, length: int) -> Iterator[memoryview]:
        """Return the bytes of a stretch, block by block; each is valid until the next is asked for."""
        if self.holds(start, length):
            yield memoryview(self.buffer)[start - self.held[0] :][:length]
            return
        self.held = (0, 0)
        yield from self._blocks(start, length)

    def _blocks(self, start: int, length: int) -> Iterator[memoryview]:
        end = start + length
        edges = [start, *range((start // self.step + 1) * self.step, end, self.step), end]
        if length <= self.step:  # one block, so that it can be held
            edges = [start, end]
        ours = [self._announce(*span) for span in zip(edges[:AHEAD], edges[1 : AHEAD + 1])]  # noqa: B905
        for number in range(len(edges) - 1):
            at, after = edges[number], edges[number + 1]
            if number + AHEAD < len(edges) - 1:
                ours.append(self._announce(edges[number + AHEAD], edges[number + AHEAD + 1]))
            view = memoryview(self.buffer)[: after - at]
            got = 0
            while got < len(view):
                count = os.preadv(self.descriptor, [view[got:]], at + got)
                if count == 0:
                    return  # cut short meanwhile: the CRC will tell
                got += count
            self.read_bytes += got
            if ours[number]:
                self.behind.append((at, got))
            if len(self.behind) > 1:  # one block behind, so that what is being read is left alone
                _advise(self.descriptor, *self.behind.pop(0), "POSIX_FADV_DONTNEED")
            self._slow()
            yield view

    def _announce(self, start: int, end: int) -> bool:
        """Have the kernel fetch a block; return whether it was in nobody's use before."""
        pages = self.resident(start, end - start)
        _advise(self.descriptor, start, end - start, "POSIX_FADV_WILLNEED")
        return pages is not None and pages * mmap.PAGESIZE <= FOREIGN

    def _slow(self) -> None:
        if self.rate:
            early = self.began + self.read_bytes / self.rate - time.monotonic()
            if early > 0:
                time.sleep(early)

    def close(self) -> None:
        """Drop the last blocks."""
        for start, size in self.behind:
            _advise(self.descriptor, start, size, "POSIX_FADV_DONTNEED")
        self.behind.clear()


def _advise(descriptor: int, start: int, size: int, what: str) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, start, size, getattr(os, what))


def _residency(descriptor: int) -> Any:
    """Return a function that counts a stretch's pages in memory, or says None.

    Only one that sees a page which was just read is believed: on overlayfs, cachestat finds no page of any file.
    """
    libc = process.libc()
    if libc is not None and os.pread(descriptor, 1, 0):
        for make in (_cachestat, _mincore):
            ask = make(libc, descriptor)
            if ask is not None and ask(0, mmap.PAGESIZE):
                return ask
    return lambda _start, _size: None


def _cachestat(libc: Any, descriptor: int) -> Any:
    if not sys.platform.startswith("linux"):
        return None
    import ctypes  # which some Pythons are built without

    def ask(start: int, size: int) -> int | None:
        span, found = (ctypes.c_uint64 * 2)(start, size), (ctypes.c_uint64 * 5)()
        return int(found[0]) if libc.syscall(_CACHESTAT, descriptor, span, found, 0) == 0 else None

    return ask


def _mincore(libc: Any, descriptor: int) -> Any:
    import ctypes

    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]

    def ask(start: int, size: int) -> int | None:
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        length = start + size - first
        where = libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, first)
        if where in (None, ctypes.c_void_p(-1).value):
            return None
        try:
            pages = ctypes.create_string_buffer(-(-length // mmap.PAGESIZE))
            if libc.mincore(where, length, pages) != 0:
                return None
            return sum(byte & 1 for byte in pages.raw)
        finally:
            libc.munmap(where, length)

    return ask
