"""A transport made of a plain function: `(argv, stdin) -> Completed`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from hostkit.errors import DataError
from hostkit.transport.base import Completed

Answer = Callable[[list[str], bytes], Completed]


class FakeTransport:
    """Answers from a function, keeps files in a dict, remembers what it was asked. Raise in the function to fail."""

    def __init__(
        self, host: str, answer: Answer | None = None, *, files: dict[str, bytes] | None = None
    ) -> None:
        self._host = host
        self._answer = answer
        self._lock = threading.Lock()
        self.files = dict(files or {})
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
        most: int | None = None,  # noqa: ARG002
    ) -> Completed:
        with self._lock:
            self.asked.append(list(argv))
        if self._answer is None:
            return Completed(tuple(argv), 127, b"", b"not found\n")
        return self._answer(argv, stdin)

    def put(self, data: bytes, path: str, *, mode: int = 0o600) -> None:  # noqa: ARG002
        with self._lock:
            self.files[path] = data

    def get(self, path: str, *, limit: int = 16 * 2**20) -> bytes:
        with self._lock:
            data = self.files.get(path)
        if data is None:
            raise DataError(f"{path} cannot be read: no such file", where=self._host)
        if len(data) > limit:
            raise DataError(f"{path} is larger than {limit} bytes", where=self._host)
        return data

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()
