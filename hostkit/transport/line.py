"""The seam between a route and what logs in: a line runs an argv where the connected part of a route ends.

`LocalLine` is this machine. An ssh implementation is an `SshLines` that gives out `SshLine`s; which one is in use is
said in `connections` alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from hostkit.errors import ProtocolError
from hostkit.transport.route import Hop

MAX_REPLY_BYTES = 256 << 20  # of a reply that is taken into memory: a host's output may never end

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
        f"reply exceeded {max_bytes >> 20} MiB; stopped",
        where=where,
        hint="does the command, or a login shell on the way, print without end?",
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

    def raise_if_lost(self) -> None:
        """Raise LostError when the connection to where it was started is lost."""
        ...

    def close(self) -> None:
        """Close its standard input and everything else of it."""
        ...


class Line(Protocol):
    """A way to run argv lists where the connected part of a route ends. Any thread may use it.

    What cannot be connected to, or is lost, raises an UnreachableError that names the hop.
    """

    def run(self, argv: list[str], stdin: bytes, budget: Budget, finished: Finished) -> tuple[bytes, bytes]:
        """Run argv; return (stdout, stderr) at their end, or as soon as `finished` says that they are whole.

        Raises UnansweredError past the budget.
        """
        ...

    def open(self, argv: list[str], deadline: float | None) -> Pipe:
        """Start argv, and return the way to talk to it; `deadline`: as in `Budget`."""
        ...

    def connect(self, deadline: float | None) -> None:
        """Connect ahead of the first argv, which raises what goes wrong here."""
        ...

    def explain(self, stdout: bytes, stderr: bytes) -> None:
        """Raise the error of its own hops that output without a frame stands for; return when nothing is known."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class HostKey:
    """A public host key. `kind`: ssh-ed25519, …; `blob`: as in the second field of known_hosts, decoded."""

    kind: str
    blob: bytes


class SshLine(Line, Protocol):
    """A line to an ssh hop, whose host keys are verified on this machine."""

    @property
    def hops_before(self) -> tuple[str, ...]:
        """The names of the hops that it is connected to through, outermost first."""
        ...

    def host_keys(self) -> Iterator[HostKey]:
        """Yield the host keys that the hop offers, without logging in to it."""
        ...

    def host_key_names(self) -> list[str]:
        """Return the names under which its host key is looked up; the first is the one to write."""
        ...


class SshLines(Protocol):
    """An ssh implementation: the lines of one hostkit command. Any thread may use it."""

    def line(self, chain: tuple[Hop, ...]) -> SshLine:
        """Return the line to the last hop of a chain, each reached through the one before it. Connects nothing."""
        ...

    def close(self) -> None:
        """Close every connection, innermost first, for good."""
        ...
