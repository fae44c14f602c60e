"""The ssh implementation by Fabric: a connection for each hop of a chain, shared by every host behind it."""

from __future__ import annotations

import threading

from hostkit.errors import LostError
from hostkit.transport.route import Hop
from hostkit.transport.ssh.hop import HopLine


class FabricLines:
    """See `SshLines`."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, ...], HopLine] = {}
        self._lock = threading.Lock()
        self._closed = False

    def line(self, chain: tuple[Hop, ...]) -> HopLine:
        """Return the shared line to the last hop of a chain; see `SshLines`."""
        with self._lock:
            if self._closed:  # a thread that is left over logs in nowhere any more
                raise LostError("hostkit closed the connection", hop=chain[-1].name)
            line: HopLine | None = None
            for end in range(1, len(chain) + 1):
                key = tuple(hop.name for hop in chain[:end])
                line = self._lines.setdefault(key, HopLine(chain[end - 1], line))
            assert line is not None
            return line

    def close(self) -> None:
        """Close every connection, innermost first; see `SshLines`."""
        with self._lock:
            self._closed = True
        for _, line in sorted(self._lines.items(), key=lambda item: -len(item[0])):
            line.close()
