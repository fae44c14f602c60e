"""A line: runs one argv where the connected part of a route ends, and gives back its raw output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Finished = Callable[[bytes | bytearray, bytes | bytearray], bool]


class Line(Protocol):
    """Runs one argv where the line ends, and gives back its raw output."""

    def carry(
        self, words: list[str], stdin: bytes, deadline: float | None, finished: Finished
    ) -> tuple[bytes, bytes]: ...

    def close(self) -> None: ...
