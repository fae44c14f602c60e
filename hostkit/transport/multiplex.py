"""A multiplexer: commands to one host through one command server there, so that a second one needs no second login.

Where ssh is run on a hop, or a container is entered, each command costs a login there, and a line in its log. The
command server starts with the first of several commands, and ends with hostkit. Where it does not start, or is lost,
each command runs in a frame of its own.
"""

from __future__ import annotations

import contextlib
import json
import struct
import threading
import time
import zlib
from functools import cache

from hostkit.errors import HostkitError, LostError, RemoteTimeoutError
from hostkit.transport.base import Completed
from hostkit.transport.diagnose import explain, explain_cut, unanswered
from hostkit.transport.frame import KILL_AFTER, Frame
from hostkit.transport.line import Budget, Line, Pipe, UnansweredError, flooded
from hostkit.transport.programs.run import FINDER, LOADER, sources_of
from hostkit.transport.route import Route
from hostkit.transport.ssh.shared_failure import Failures

GRACE_SECONDS = 5.0  # seconds beyond the far side's own timeout before this side gives up
MAX_NOISE_BYTES = 1 << 20  # bytes that login shells may print before it
MAX_FRAME_BYTES = 1 << 20  # no frame is larger
START_SECONDS = 10.0  # for the command server to start, beyond what ssh on a hop may take to connect
TICK = 0.25  # seconds between two checks of the deadline


@cache
def _program() -> bytes:
    text = (
        FINDER.format(sources=sources_of("command_server")) + "import command_server\ncommand_server.run()\n"
    )
    packed = zlib.compress(text.encode(), 9)
    return b"%d\n%s" % (len(packed), packed)


def _past(until: float | None) -> bool:
    return until is not None and time.monotonic() > until


class _Request:
    """One command that was asked for, and its output so far."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.out, self.err = bytearray(), bytearray()
        self.end: dict[str, int] | None = None
        self.done = threading.Event()
        self.flooded = False

    def take(self, kind: bytes, payload: bytes) -> None:
        if kind == b"x":
            self.end = json.loads(payload)
            self.done.set()
        elif not self.flooded:
            (self.out if kind == b"o" else self.err).extend(payload)
            if len(self.out) + len(self.err) > self.max_bytes:
                self.flooded = True
                self.done.set()


class Multiplexer:
    """The multiplexer of one host; it starts its command server at the first command. Any thread may use it."""

    def __init__(self, route: Route, line: Line) -> None:
        self.route = route
        self._line = line
        self._starting = threading.Lock()
        self._writing = threading.Lock()
        self._was_started = False
        self._pipe: Pipe | None = None
        self._frame = Frame()
        self._before = bytearray()  # output in place of the first frame
        self._began = False
        self._ready = threading.Event()  # it runs, or it has ended
        self._ended = False
        self._requests: dict[int, _Request] = {}
        self._number = 0
        self._failures = Failures()

    def run(
        self, argv: list[str], stdin: bytes, timeout: float | None, max_bytes: int, deadline: float | None
    ) -> Completed | None:
        """Run argv on the host, see `Transport.run`; None where no command server runs."""
        since = time.monotonic()
        until = Budget(None if timeout is None else timeout + KILL_AFTER + GRACE_SECONDS, deadline).end()
        if not self._ensure_started(until):
            return None
        request = _Request(max_bytes)
        with self._writing:
            self._number += 1
            number = self._number
            self._requests[number] = request
        head = {"id": number, "argv": argv, "given": len(stdin), "timeout": timeout}
        try:
            self._send(head, stdin, until)
            while not (request.done.wait(TICK) or self._ended):
                if _past(until):
                    raise self._late(since)
        except BaseException:
            self._cancel(number)
            raise
        finally:
            self._requests.pop(number, None)
        if request.flooded:
            self._cancel(number)
            raise flooded(self.route.host, max_bytes)
        if request.end is None:
            raise self._lost()
        if request.end["late"]:
            raise RemoteTimeoutError(
                f"{argv[0]} exceeded its limit of {timeout:.3g} s, and was stopped",
                hop=self.route.host,
                hops_reached=self._hops_reached(),
            )
        return Completed(tuple(argv), request.end["exit"], bytes(request.out), bytes(request.err))

    def connect(self, deadline: float | None) -> None:
        """Start the command server ahead of the first command, which raises what goes wrong."""
        try:
            self._ensure_started(deadline)
        except HostkitError as error:
            self._failures.defer(error)

    def close(self) -> None:
        """End the command server. Commands under way are lost."""
        self._ended = True  # also one that is still starting
        if self._pipe is not None:
            self._pipe.close()

    # --- starting

    def _ensure_started(self, until: float | None) -> bool:
        """Return whether the command server runs; one thread starts it, the others wait for that."""
        since = time.monotonic()
        if not self._starting.acquire(timeout=-1 if until is None else max(0.0, until - since)):
            raise self._late(since)
        try:
            self._failures.raise_recent(since)
            if not self._was_started:
                self._was_started = True
                try:
                    self._start(until)
                except HostkitError as error:
                    self._failures.record(error)
                    raise
        finally:
            self._starting.release()
        return self._ready.is_set() and not self._ended

    def _start(self, until: float | None) -> None:
        python = [self.route.hops[-1].host.python, "-I", "-S", "-B", "-c", LOADER]
        self._pipe = self._line.open(self.route.wrap(self._frame.argv(python)), until)
        if self._ended:
            self._pipe.close()
        threading.Thread(
            target=self._read, args=(self._pipe,), name="hostkit-multiplexer", daemon=True
        ).start()
        since = time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # it has ended: its output says why
            self._pipe.send(_program(), until)
        inner = [hop.host.timeouts.connect for hop in self.route.wrapped() if hop.kind == "ssh"]
        limit = since + START_SECONDS + sum(inner)
        while not self._ready.wait(TICK):
            if _past(until) or time.monotonic() > limit:
                self._ended = True
                self._pipe.close()
                if not self._began or _past(until):  # a command of its own would hang there, too
                    raise self._late(since)
                return  # it is not Python, whatever it is
        if self._ended and not self._began:
            self._pipe.raise_if_lost()
            output = bytes(self._before), self._pipe.stderr_tail()
            explain(self.route, *output)
            self._line.explain(*output)

    # --- receiving

    def _read(self, pipe: Pipe) -> None:
        """Hand each frame to its request, until the end or something that is not a frame."""
        rest = bytearray()
        try:
            while data := pipe.receive():
                rest += data
                if (self._began or self._begins(rest)) and not self._frames(rest):
                    pipe.close()  # the commands there are ended, and may be run again
                    break
                if not self._began and len(rest) > MAX_NOISE_BYTES:
                    pipe.close()
                    break
        except (OSError, EOFError, ValueError, KeyError):
            return  # the end
        finally:
            self._ended = True
            self._ready.set()
            for request in list(self._requests.values()):
                request.done.set()

    def _begins(self, rest: bytearray) -> bool:
        """Return whether the frame has begun; drop what login shells print before it."""
        self._began = self._frame.began(rest)
        if self._began:
            del rest[: rest.index(b" begin\n") + len(b" begin\n")]
        else:
            self._before[:] = rest[-4096:]
        return self._began

    def _frames(self, rest: bytearray) -> bool:
        while len(rest) >= 4:
            size = struct.unpack_from("<I", rest)[0]
            if size > MAX_FRAME_BYTES:
                return False
            if len(rest) < 4 + size:
                break
            body = bytes(rest[4 : 4 + size])
            del rest[: 4 + size]
            if size == 4:
                self._ready.set()
            elif size > 4:
                request = self._requests.get(struct.unpack_from("<I", body)[0])
                if request is not None:
                    request.take(body[4:5], body[5:])
        return True

    # --- sending

    def _send(self, head: dict[str, object], given: bytes = b"", until: float | None = None) -> None:
        spelt = json.dumps(head).encode()
        assert self._pipe is not None
        since = time.monotonic()
        with self._writing:
            try:
                self._pipe.send(struct.pack("<I", len(spelt)) + spelt + given, until)
            except BrokenPipeError:
                raise self._lost() from None
            except BaseException as error:  # a question that stands there in part makes nonsense of the next
                self._ended = True
                self._pipe.close()
                if isinstance(error, TimeoutError):
                    raise self._late(since) from None
                raise

    def _cancel(self, number: int) -> None:
        with contextlib.suppress(Exception):
            self._send({"end": number}, until=time.monotonic() + TICK)

    # --- errors

    def _late(self, since: float) -> RemoteTimeoutError:
        stderr = b"" if self._began or self._pipe is None else self._pipe.stderr_tail()
        waited = time.monotonic() - since
        return unanswered(self.route, UnansweredError(stderr=stderr), began=self._began, seconds=waited)

    def _lost(self) -> LostError:
        """Return, or raise, why the command server is lost."""
        assert self._pipe is not None
        self._pipe.raise_if_lost()
        explain_cut(self.route, self._pipe.stderr_tail())
        return LostError(
            "the remote command server exited", hop=self.route.host, hops_reached=self._hops_reached()
        )

    def _hops_reached(self) -> tuple[str, ...]:
        return tuple(hop.name for hop in self.route.hops[:-1])
