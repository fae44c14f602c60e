"""A transport made of a plain function: `(argv, stdin) -> Completed`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from hostkit.transport.base import Completed

Answer = Callable[[list[str], bytes], Completed]


class FakeTransport:
    """Answers from a function, and remembers the argv lists. Raise in the function to fail."""

    def __init__(self, host: str, answer: Answer | None = None) -> None:
        self._host = host
        self._answer = answer
        self._lock = threading.Lock()
        self.asked: list[list[str]] = []
        self.closed = False

    @property
    def host(self) -> str:
        return self._host

    def run(
        self,
        argv: list[str],
        *,
        stdin: bytes = b"",
        timeout: float | None = None,  # noqa: ARG002
        max_bytes: int | None = None,  # noqa: ARG002
    ) -> Completed:
        with self._lock:
            self.asked.append(list(argv))
        if self._answer is None:
            return Completed(tuple(argv), 127, b"", b"not found\n")
        return self._answer(argv, stdin)

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()
