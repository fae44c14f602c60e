"""The end of what a command that stays says on its standard error, read all the time so that it never waits for us."""

from __future__ import annotations

import threading
from collections.abc import Callable

MAX_BYTES = 1 << 16  # bytes that are kept
GRACE_SECONDS = 1.0  # seconds in which the last words come, once the command has ended


class Tail:
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
        """Return what is kept, a moment later where more may come."""
        self._reader.join(GRACE_SECONDS)
        return self._kept
