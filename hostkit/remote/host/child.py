"""A child that the kernel ends when we end, and the end of what it said: nothing may go on for nobody.

Travels to hosts: standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from typing import IO, Any, Callable, Sequence

from host import process

TAIL = 4000  # bytes of a child's complaints that are kept
PATIENCE = 10.0  # seconds in which a child that is told to end has to


def end_with_us() -> Callable[[], None]:
    """Return what a child does first, so that the kernel ends it when we end."""
    # loaded here, since a child of many threads should load nothing; None beside Linux, or without ctypes
    prctl, me = getattr(process.libc(), "prctl", None), os.getpid()

    def ask() -> None:
        if prctl is not None:
            prctl(process.PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != me:  # we ended before it was said
            os._exit(1)

    return ask


class ChildProcess:
    """A child that dies with its parent. Its stderr is read all the time, and its end kept; no file is written."""

    def __init__(
        self, argv: Sequence[str], *, given: bytes | None = None, pass_fds: Sequence[int] = (), **more: Any
    ) -> None:
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            list(argv),
            stdin=more.pop("stdin", subprocess.PIPE),
            stderr=subprocess.PIPE,
            pass_fds=tuple(pass_fds),
            preexec_fn=end_with_us(),  # noqa: PLW1509  (our other threads only wait, read or write)
            env=dict(os.environ, LC_ALL="C.UTF-8"),
            **more,
        )
        self._tail = b""
        assert self.process.stderr is not None
        self._listener = threading.Thread(target=self._listen, args=(self.process.stderr,), daemon=True)
        self._listener.start()
        if given is not None:
            threading.Thread(target=self._give, args=(given,), daemon=True).start()

    def _listen(self, stream: IO[bytes]) -> None:
        for block in iter(lambda: os.read(stream.fileno(), 65536), b""):
            self._tail = (self._tail + block)[-TAIL:]

    def _give(self, data: bytes) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(data)
            self.process.stdin.close()
        except OSError:
            return  # it ended before it had heard all: its status says why

    def end(self, *, now: bool) -> int:
        """Wait for its end, or bring it about; return its status."""
        if now:
            self.process.terminate()
            try:
                return self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()

    def said(self) -> str:
        """Return the end of what it said, once it has ended (something that it started may still hold the pipe)."""
        self._listener.join(2)
        return self._tail.decode("utf-8", "replace")
