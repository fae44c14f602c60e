"""The end of a long command's standard error, drained all the time so that the command never blocks."""

from __future__ import annotations

import threading
from collections.abc import Callable

MAX_BYTES = 1 << 16  # bytes that are kept
GRACE_SECONDS = 1.0  # seconds in which the rest arrives once the command has ended


class StderrTail:
    """Reads by `receive`, which returns nothing at the end."""

    def __init__(self, receive: Callable[[], bytes]) -> None:
        self._receive = receive
        self._kept = b""
        self._reader = threading.Thread(target=self._read, name="hostkit-stderr", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while data := self._receive():
            self._kept = (self._kept + data)[-MAX_BYTES:]

    def text(self) -> bytes:
        """Return what is kept, a moment later where more may arrive."""
        self._reader.join(GRACE_SECONDS)
        return self._kept
