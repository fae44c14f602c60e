"""The interface of every way to a host: give it an argv, get a Completed."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that ended: its argv, exit status (128 + n when signal n ended it), and raw output."""

    argv: tuple[str, ...]  # non-UTF-8 bytes as surrogate escapes, as os.fsdecode gives them
    exit: int
    stdout: bytes
    stderr: bytes

    @property
    def ok(self) -> bool:
        return self.exit == 0

    def text(self) -> str:
        """Return stdout as text; bytes that are no UTF-8 become U+FFFD."""
        return self.stdout.decode("utf-8", "replace")


class Transport(Protocol):
    """A way to one inventory host. Connects at first use; close it, or use it in a `with`.

    `run` raises only when the answer is unknown: `UnreachableError` and its kinds (naming the hop) when
    a hop could not be reached, refused, was lost or ran out of time; `ProtocolError` when the reply was
    not whole. Any exit status of the command itself is returned, never raised.
    """

    @property
    def host(self) -> str:
        """The inventory name of the host that commands run on."""
        ...

    def run(
        self,
        argv: list[str],
        *,
        stdin: bytes = b"",
        timeout: float | None = None,
        max_bytes: int | None = None,
    ) -> Completed:
        """Run argv on the host. `timeout` (seconds) kills the command on the far side too.

        More than `max_bytes` bytes of output (default: 256 MiB) are a `ProtocolError`, and end it as well.
        """
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
