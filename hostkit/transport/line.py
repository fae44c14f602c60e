"""A line: runs one argv where the connected part of a route ends, and gives back its raw output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hostkit.errors import ProtocolError

MOST = 256 << 20  # bytes of a reply that are taken into memory: a host's output is data, and may never end

Finished = Callable[[bytes | bytearray, bytes | bytearray], bool]


@dataclass(frozen=True, slots=True)
class Budget:
    """What a command may take on this side; the far side's own timeout is in its frame."""

    seconds: float | None = None  # from its start to its end
    connect_by: float | None = None  # monotonic: the end of the whole hostkit command
    most: int = MOST  # bytes of both streams together


def flooded(where: str, most: int) -> ProtocolError:
    """Return the error for a reply that has more bytes than are taken."""
    return ProtocolError(
        f"more than {most >> 20} MiB came as a reply, and nothing says that it would end",
        where=where,
        hint="does the command, or a login shell on the way, print without end? It was ended",
    )


class Line(Protocol):
    """Any thread may use it."""

    def carry(
        self, words: list[str], stdin: bytes, budget: Budget, finished: Finished
    ) -> tuple[bytes, bytes]:
        """Run words; return (stdout, stderr) at their end, or as soon as `finished` says that they are whole."""
        ...

    def close(self) -> None: ...
