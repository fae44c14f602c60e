"""One command on one SSH channel: raw bytes in and out by own pumps, so that no stream can block another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import paramiko

from hostkit.transport.line import Finished, UnansweredError
from hostkit.transport.stderr_tail import StderrTail

_CHUNK = 1 << 16
_TICK = 0.25  # seconds between two looks at the deadline while nothing arrives


def exchange(
    channel: paramiko.Channel,
    line: bytes,
    stdin: bytes,
    deadline: float | None,
    finished: Finished,
    max_bytes: int,
) -> tuple[bytes, bytes]:
    """Run `line` in the login shell; return (stdout, stderr) once they ended or `finished` says they are whole.

    Raises UnansweredError past the deadline, OverflowError beyond `max_bytes` bytes, SSHException when the server does
    not start the command. A lost connection ends both streams: the caller looks whether the transport still lives.
    """
    out, err = bytearray(), bytearray()
    channel.settimeout(_TICK)
    channel.exec_command(line)
    stop = threading.Event()
    drain = threading.Thread(
        target=_drain, args=(channel, err, stop, max_bytes), name="hostkit-stderr", daemon=True
    )
    feed = threading.Thread(target=_feed, args=(channel, stdin, stop), name="hostkit-stdin", daemon=True)
    try:
        drain.start()
        feed.start()
        while True:
            try:
                data = channel.recv(_CHUNK)
            except TimeoutError:
                data = None
            if data == b"":
                # stdout has ended; stderr may have more, but a grandchild may also hold it open
                while drain.is_alive() and not _late(deadline):
                    drain.join(_TICK)
                    if finished(out, err):
                        break
                break
            out += data or b""
            if finished(out, err):
                break
            if len(out) + len(err) > max_bytes:
                raise OverflowError
            if _late(deadline):
                raise UnansweredError(bytes(out), bytes(err))
        return bytes(out), bytes(err)
    finally:
        stop.set()
        channel.close()
        drain.join(5)
        feed.join(5)


def _late(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() > deadline


def _drain(channel: paramiko.Channel, into: bytearray, stop: threading.Event, max_bytes: int) -> None:
    while not stop.is_set() and len(into) <= max_bytes:
        data = _patient(lambda: channel.recv_stderr(_CHUNK))
        if data == b"":
            return
        into += data or b""


def _patient(recv: Callable[[], bytes]) -> bytes | None:
    try:
        return recv()
    except TimeoutError:
        return None
    except (OSError, EOFError):
        return b""


def _feed(channel: paramiko.Channel, data: bytes, stop: threading.Event) -> None:
    rest = memoryview(data)
    try:
        while rest and not stop.is_set():
            try:
                rest = rest[channel.send(bytes(rest[:_CHUNK])) :]
            except TimeoutError:
                continue
        channel.shutdown_write()
    except (OSError, EOFError):  # the command ended without the rest: no fault
        return


class ChannelPipe:
    """A command that stays on its channel; see `Pipe`. `leave`: gives the channel back."""

    def __init__(
        self,
        channel: paramiko.Channel,
        line: bytes,
        raise_if_lost: Callable[[], None],
        leave: Callable[[], None],
    ) -> None:
        self._channel = channel
        self.raise_if_lost = raise_if_lost
        self._leave = leave
        self._closed = threading.Event()
        channel.settimeout(_TICK)
        channel.exec_command(line)
        self._tail = StderrTail(lambda: self._more(channel.recv_stderr))

    def send(self, data: bytes, until: float | None = None) -> None:
        """Send all of it; see `Pipe`."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._channel.send(bytes(rest[:_CHUNK])) :]
            except TimeoutError:
                if _late(until):
                    raise
            except (OSError, EOFError) as error:
                raise BrokenPipeError from error

    def receive(self) -> bytes:
        """Return what comes next; see `Pipe`."""
        return self._more(self._channel.recv)

    def _more(self, recv: Callable[[int], bytes]) -> bytes:
        data = None
        while data is None and not self._closed.is_set():
            data = _patient(lambda: recv(_CHUNK))
        return data or b""

    def stderr_tail(self) -> bytes:
        """Return the end of its stderr; see `Pipe`."""
        return self._tail.text()

    def close(self) -> None:
        """Close the channel; see `Pipe`."""
        self._closed.set()
        self._leave()
