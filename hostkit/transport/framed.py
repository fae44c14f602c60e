"""The Transport that hostkit uses everywhere: a line to the last connected hop, the route's wrappers, the frame."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from hostkit.errors import CannotCreateError, DataError, DeadlineError, LostError, RemoteTimeoutError
from hostkit.sanitize import one_line
from hostkit.transport.base import Completed
from hostkit.transport.diagnose import explain, explain_cut
from hostkit.transport.frame import KILL_AFTER, Frame
from hostkit.transport.line import MOST, Budget, Line
from hostkit.transport.multiplex import Attendant
from hostkit.transport.route import Route

SLACK = 5.0  # seconds beyond the far side's own timeout before this side gives up

_PUT = (
    'set -e; d=$(dirname -- "$1"); t=$(mktemp "$d/.hostkit-XXXXXXXX"); trap \'rm -f -- "$t"\' EXIT; cat >"$t"; '
    '[ "$(wc -c <"$t")" -eq "$3" ] || { echo "only a part of it arrived" >&2; exit 9; }; '
    'chmod "$2" "$t"; mv -f -- "$t" "$1"; trap - EXIT'
)
_GET = '[ -f "$1" ] || { echo "no such file" >&2; exit 9; }; exec head -c "$2" -- "$1"'


class FramedTransport:
    """A way to one inventory host. `deadline` (monotonic) is the end of the whole hostkit command."""

    def __init__(
        self, route: Route, line: Line, *, deadline: float | None = None, attendant: Attendant | None = None
    ) -> None:
        self.route = route
        self._line = line
        self._deadline = deadline
        self._attendant = attendant

    @property
    def host(self) -> str:
        return self.route.host

    def run(
        self, argv: list[str], *, stdin: bytes = b"", timeout: float | None = None, most: int | None = None
    ) -> Completed:
        """Run argv on the host; see `Transport.run`."""
        timeout = self._budget(timeout)
        most = MOST if most is None else most
        frame = Frame()
        words = self.route.wrap(frame.words(argv, timeout=timeout))
        if self._attendant is not None:
            done = self._attendant.run(argv, stdin, timeout, most, self._deadline)
            if done is not None:
                return done
        seconds = None if timeout is None else timeout + KILL_AFTER + SLACK
        budget = Budget(seconds, self._deadline, most)
        out, err = self._line.carry(words, stdin, budget, lambda o, e: frame.ended(o) and frame.ended(e))
        if not frame.began(out):
            explain(self.route, out, err)
        elif not frame.ended(out):
            explain_cut(self.route, err)
        reply = frame.parse(out, err)
        if reply.timed_out:
            raise RemoteTimeoutError(
                f"{argv[0]} ran longer than {timeout:g} s, and was ended there",
                hop=self.host,
                stood=self._stood(),
            )
        return Completed(tuple(argv), reply.exit, reply.stdout, reply.stderr)

    def begin(self) -> None:
        """Connect before anything is asked. What goes wrong is raised by the first question."""
        if self._attendant is not None:
            self._attendant.begin(self._deadline)
        else:
            self._line.begin(self._deadline)

    def _stood(self) -> tuple[str, ...]:
        return tuple(hop.name for hop in self.route.hops[:-1])

    def _budget(self, timeout: float | None) -> float | None:
        if self._deadline is None:
            return timeout
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise DeadlineError("--timeout was used up before this host was asked", hop=self.host)
        return left if timeout is None else min(timeout, left)

    def put(self, data: bytes, path: str, *, mode: int = 0o600) -> None:
        """Write a small file whole or not at all."""
        done = self.run(["sh", "-c", _PUT, "sh", path, f"{mode:o}", str(len(data))], stdin=data, timeout=60)
        if not done.ok:
            raise CannotCreateError(f"{path} was not written: {_said(done)}", where=self.host)

    def get(self, path: str, *, limit: int = 16 * 2**20) -> bytes:
        """Read a small file; one larger than `limit` bytes is a DataError."""
        ask = ["sh", "-c", _GET, "sh", path, str(limit + 1)]
        try:
            done = self.run(ask, timeout=60)
        except LostError:  # a read may be asked again
            done = self.run(ask, timeout=60)
        if not done.ok:
            raise DataError(f"{path} cannot be read: {_said(done)}", where=self.host)
        if len(done.stdout) > limit:
            raise DataError(f"{path} is larger than {limit} bytes", where=self.host)
        return done.stdout

    def close(self) -> None:
        """Shared lines are closed by their Connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()


def _said(done: Completed) -> str:
    text = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return one_line(text[-1]) if text else f"exit {done.exit}"
