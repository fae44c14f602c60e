"""A line: runs one argv where the connected part of a route ends, and gives back its raw output."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hostkit.errors import ProtocolError

MAX_REPLY_BYTES = (
    256 << 20
)  # bytes of a reply that are taken into memory: a host's output is data, and may never end

Finished = Callable[[bytes | bytearray, bytes | bytearray], bool]


@dataclass(frozen=True, slots=True)
class Budget:
    """What a command may take on this side; the far side's own timeout is in its frame."""

    seconds: float | None = None  # from its start to its end
    deadline: float | None = None  # monotonic: by then it has answered, logging in included
    max_bytes: int = MAX_REPLY_BYTES  # bytes of both streams together

    def end(self) -> float | None:
        """Return when a command that starts now must have answered (monotonic)."""
        ends = [] if self.seconds is None else [time.monotonic() + self.seconds]
        ends += [] if self.deadline is None else [self.deadline]
        return min(ends, default=None)


class UnansweredError(Exception):
    """The budget was used up before the reply was whole; what had come until then tells how far the command got."""

    def __init__(self, stdout: bytes = b"", stderr: bytes = b"") -> None:
        super().__init__("no answer within the budget")
        self.stdout = stdout
        self.stderr = stderr


def flooded(where: str, max_bytes: int) -> ProtocolError:
    """Return the error for a reply that has more bytes than are taken."""
    return ProtocolError(
        f"more than {max_bytes >> 20} MiB came as a reply, and nothing says that it would end",
        where=where,
        hint="does the command, or a login shell on the way, print without end? It was ended",
    )


class Pipe(Protocol):
    """A command that stays, and is talked to. One thread receives; any may send, one at a time."""

    def send(self, data: bytes, until: float | None = None) -> None:
        """Give it all of the data. Raises BrokenPipeError when it has ended, TimeoutError past `until` (monotonic)."""
        ...

    def receive(self) -> bytes:
        """Return what it printed next; nothing when there will be no more."""
        ...

    def stderr_tail(self) -> bytes:
        """Return the end of what came on its standard error."""
        ...

    def explain(self) -> None:
        """Raise the LostError that its end stands for, when the connection to where it was started is lost."""
        ...

    def close(self) -> None:
        """Close its standard input and everything else of it."""
        ...


class Line(Protocol):
    """Any thread may use it."""

    def run(self, argv: list[str], stdin: bytes, budget: Budget, finished: Finished) -> tuple[bytes, bytes]:
        """Run argv; return (stdout, stderr) at their end, or as soon as `finished` says that they are whole.

        Raises UnansweredError past the budget.
        """
        ...

    def open(self, argv: list[str], deadline: float | None) -> Pipe:
        """Start argv, and return the way to talk to them; `deadline`: as in `Budget`."""
        ...

    def connect(self, deadline: float | None) -> None:
        """Connect to where argv are started, where that is far away; what goes wrong is raised by the first argv."""
        ...

    def close(self) -> None: ...
