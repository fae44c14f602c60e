"""Write on at the end of a file, and have the disk begin at once, so that the flush at the end finds little to do.

Travels to hosts: standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import os
from typing import Any

from host import process

WRITTEN = 16 << 20  # bytes that the disk is told of at once


class Writer:
    """Writes to one descriptor from `at` on."""

    def __init__(self, descriptor: int, at: int) -> None:
        self.descriptor = descriptor
        self.at = self.begun = at
        self.begin = getattr(process.libc(), "sync_file_range", None)
        if self.begin is not None:
            import ctypes

            self.begin.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]

    def write(self, data: Any) -> None:
        """Write all of the data."""
        view = memoryview(data)
        while view:
            count = os.write(self.descriptor, view)
            view = view[count:]
            self.at += count
        if self.begin is not None and self.at - self.begun >= WRITTEN:
            self.begin(
                self.descriptor, self.begun, self.at - self.begun, 2
            )  # SYNC_FILE_RANGE_WRITE: does not wait
            self.begun = self.at
