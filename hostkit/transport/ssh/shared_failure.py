"""Why the last connect failed: raised for whoever waited for it, so that a dead hop costs its budget once."""

from __future__ import annotations

import time

from hostkit.errors import HostkitError


class Failures:
    """Of one connection. Used under the lock that lets one thread try at a time."""

    def __init__(self) -> None:
        self._last: tuple[float, HostkitError] | None = None
        self._deferred: HostkitError | None = None

    def raise_recent(self, asked: float) -> None:
        """Raise the error recorded after `asked` (monotonic), or the deferred one."""
        error, self._deferred = self._deferred, None
        if self._last is not None and self._last[0] > asked:
            raise self._last[1]
        if error is not None:
            raise error

    def record(self, error: HostkitError) -> None:
        """Remember that connecting failed just now."""
        self._last = (time.monotonic(), error)

    def defer(self, error: HostkitError) -> None:
        """Raise it for the next caller: a second login that fails would be one more line in the host's log."""
        self._deferred = error
