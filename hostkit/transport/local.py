"""Commands on this very machine: a subprocess, fed and drained by own pumps."""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from hostkit.errors import UnreachableError
from hostkit.transport.line import Budget, Finished, Pipe, UnansweredError, flooded
from hostkit.transport.stderr_tail import StderrTail

_CHUNK = 1 << 16


class LocalLine:
    """Starts argv lists here. Any thread may use it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def run(self, argv: list[str], stdin: bytes, budget: Budget, finished: Finished) -> tuple[bytes, bytes]:
        """Run argv; see `Line`."""
        deadline = budget.end()
        process: subprocess.Popen[bytes] | None = None
        try:
            with _signals_wait():
                process = self._start(argv)
            return _exchange(process, stdin, deadline, finished, budget.max_bytes)
        except OverflowError:
            raise flooded(self._name, budget.max_bytes) from None
        finally:
            if process is not None:
                _end(process)

    def open(self, argv: list[str], deadline: float | None) -> Pipe:
        """Start argv; see `Line`."""
        del deadline
        return LocalPipe(self._start(argv))

    def _start(self, argv: list[str]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            why = f"cannot start {argv[0]}: {error.strerror}"
            raise UnreachableError(why, hop=self._name) from error

    def connect(self, deadline: float | None) -> None:
        """Do nothing: this machine needs no connection; see `Line`."""

    def explain(self, stdout: bytes, stderr: bytes) -> None:
        """Do nothing: no login shell reads the argv; see `Line`."""

    def close(self) -> None:
        """Do nothing: no connection is open; see `Line`."""


class LocalPipe:
    """A process of this machine that stays; see `Pipe`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin and process.stdout and process.stderr
        self._process = process
        self._in, self._out = process.stdin, process.stdout
        os.set_blocking(self._in.fileno(), False)
        stderr = process.stderr
        self._tail = StderrTail(lambda: _read(stderr))

    def send(self, data: bytes, until: float | None = None) -> None:
        """Write all of it; see `Pipe`."""
        rest = memoryview(data)
        while rest:
            try:
                poll = select.poll()
                poll.register(self._in, select.POLLOUT)
                if poll.poll(250):
                    rest = rest[os.write(self._in.fileno(), rest[:_CHUNK]) :]
                    continue
            except BlockingIOError:
                pass
            except (OSError, ValueError) as error:  # it has ended, or was closed
                raise BrokenPipeError from error
            if until is not None and time.monotonic() > until:
                raise TimeoutError

    def receive(self) -> bytes:
        """Return what comes next; see `Pipe`."""
        return _read(self._out)

    def stderr_tail(self) -> bytes:
        """Return the end of its stderr; see `Pipe`."""
        return self._tail.text()

    def raise_if_lost(self) -> None:
        """Do nothing: this machine needs no connection; see `Pipe`."""

    def close(self) -> None:
        """Let it go; see `Pipe`. Only the process that was started is ended, where it does not end by itself.

        What that has begun in a container hears of it, and sees to its own end, as on any other host.
        """
        _close_streams(self._process)
        try:
            self._process.wait(0.2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _read(stream: IO[bytes]) -> bytes:
    try:
        return os.read(stream.fileno(), _CHUNK)
    except (OSError, ValueError):  # closed
        return b""


@contextlib.contextmanager
def _signals_wait() -> Iterator[None]:
    """Hold back signals that end us until a child that was started is known, or nobody would end it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run in the main thread alone
        return
    arrived: list[int] = []
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    caught = {number: handler for number, handler in kept.items() if callable(handler)}
    try:
        for number in caught:
            signal.signal(number, lambda which, _frame: arrived.append(which))
        yield
    finally:
        for number, handler in caught.items():
            signal.signal(number, handler)
        for which in arrived:
            signal.raise_signal(which)


def _exchange(
    process: subprocess.Popen[bytes],
    stdin: bytes,
    deadline: float | None,
    finished: Finished,
    max_bytes: int,
) -> tuple[bytes, bytes]:
    assert process.stdin and process.stdout and process.stderr
    out, err = bytearray(), bytearray()
    rest = memoryview(stdin)
    with selectors.DefaultSelector() as selector:
        for stream in (process.stdin, process.stdout, process.stderr):
            os.set_blocking(stream.fileno(), False)
        selector.register(process.stdout, selectors.EVENT_READ, out)
        selector.register(process.stderr, selectors.EVENT_READ, err)
        if rest:
            selector.register(process.stdin, selectors.EVENT_WRITE)
        else:
            process.stdin.close()
        while len(selector.get_map()) > (1 if rest else 0):
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise UnansweredError(bytes(out), bytes(err))
            for key, _ in selector.select(left):
                if key.data is None:
                    try:
                        rest = rest[os.write(key.fd, rest[:_CHUNK]) :]
                    except BlockingIOError:
                        continue
                    except BrokenPipeError:  # the command does not want the rest: no fault
                        rest = rest[:0]
                    if not rest:
                        selector.unregister(key.fileobj)
                        process.stdin.close()
                elif data := os.read(key.fd, _CHUNK):
                    key.data.extend(data)
                else:
                    selector.unregister(key.fileobj)
            if finished(out, err):
                break
            if len(out) + len(err) > max_bytes:
                raise OverflowError
    return bytes(out), bytes(err)


def _close_streams(process: subprocess.Popen[bytes]) -> None:
    """Close its streams."""
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave no descendant of an interrupted command behind: all processes of the session that it was given."""
    _close_streams(process)
    if process.poll() is None:
        try:
            process.wait(0.2)
        except subprocess.TimeoutExpired:
            for pid in _session(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()


def _session(leader: int) -> list[int]:
    pids = [leader]
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int(stat.read_bytes().rpartition(b")")[2].split()[3]) == leader:
                pids.append(int(stat.parent.name))
    return pids
