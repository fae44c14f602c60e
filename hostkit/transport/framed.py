"""The Transport that hostkit uses everywhere: a line to the last connected hop, the route's wrappers, the frame."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from hostkit.errors import DeadlineError, RemoteTimeoutError
from hostkit.transport.base import Completed
from hostkit.transport.diagnose import explain, explain_cut, unanswered
from hostkit.transport.frame import KILL_AFTER, Frame
from hostkit.transport.line import MAX_REPLY_BYTES, Budget, Line, UnansweredError
from hostkit.transport.multiplex import Multiplexer
from hostkit.transport.route import Route

GRACE_SECONDS = 5.0  # seconds beyond the far side's own timeout before this side gives up


class FramedTransport:
    """A way to one inventory host. By `deadline` (monotonic) every question is answered, logging in included."""

    def __init__(
        self,
        route: Route,
        line: Line,
        *,
        deadline: float | None = None,
        multiplexer: Multiplexer | None = None,
    ) -> None:
        self.route = route
        self._line = line
        self._deadline = deadline
        self._multiplexer = multiplexer

    @property
    def host(self) -> str:
        return self.route.host

    def run(
        self,
        argv: list[str],
        *,
        stdin: bytes = b"",
        timeout: float | None = None,
        max_bytes: int | None = None,
    ) -> Completed:
        """Run argv on the host; see `Transport.run`."""
        since = time.monotonic()
        timeout = self._budget(timeout)
        max_bytes = MAX_REPLY_BYTES if max_bytes is None else max_bytes
        frame = Frame()
        framed = frame.argv(argv, timeout=timeout)
        if self._multiplexer is not None:
            done = self._multiplexer.run(argv, stdin, timeout, max_bytes, self._deadline)
            if done is not None:
                return done
            if timeout is not None:  # one budget for both tries
                timeout = max(1.0, timeout - (time.monotonic() - since))
                framed = frame.argv(argv, timeout=timeout)
        seconds = None if timeout is None else timeout + KILL_AFTER + GRACE_SECONDS
        budget = Budget(seconds, self._deadline, max_bytes)
        try:
            out, err = self._line.run(
                self.route.wrap(framed), stdin, budget, lambda o, e: frame.ended(o) and frame.ended(e)
            )
        except UnansweredError as error:
            began, waited = frame.began(error.stdout), time.monotonic() - since
            raise unanswered(self.route, error, began=began, seconds=waited) from None
        if not frame.began(out):
            explain(self.route, out, err)
            self._line.explain(out, err)
        elif not frame.ended(out):
            explain_cut(self.route, err)
        reply = frame.parse(out, err)
        if reply.timed_out:
            raise RemoteTimeoutError(
                f"{argv[0]} exceeded its limit of {timeout:.3g} s, and was stopped",
                hop=self.host,
                hops_reached=self._hops_reached(),
            )
        return Completed(tuple(argv), reply.exit, reply.stdout, reply.stderr)

    def connect(self) -> None:
        """Connect before anything is asked. What goes wrong is raised by the first question."""
        if self._multiplexer is not None:
            self._multiplexer.connect(self._deadline)
        else:
            self._line.connect(self._deadline)

    def _hops_reached(self) -> tuple[str, ...]:
        return tuple(hop.name for hop in self.route.hops[:-1])

    def _budget(self, timeout: float | None) -> float | None:
        if self._deadline is None:
            return timeout
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise DeadlineError(
                "the time was used up before it was asked", hop=self.host, hint="allow more with --timeout"
            )
        left = max(left / 2, left - KILL_AFTER - 1.0)  # what is ended there can still say so
        return left if timeout is None else min(timeout, left)

    def close(self) -> None:
        """Shared lines are closed by their Connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()
