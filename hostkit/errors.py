"""Every error that hostkit raises on purpose, and the exit code that each one means.

    HostkitError                 70  internal
    ├── UsageError               64  a flag or an argument is wrong
    ├── DataError                65  a file or a reply is not what it should be
    │   ├── ProtocolError        65  a remote program's reply was not whole (the answer is unknown)
    │   └── NotWholeError        65  a checkpoint proves not to be whole when it is read by itself
    ├── JobEndedError            65  a job ended without a result (carries its state)
    ├── UnreachableError         69  a hop could not be reached, or was lost
    │   ├── HostKeyError         69  a hop's host key is unknown or changed
    │   ├── AuthError            69  a hop refused the login
    │   ├── LostError            69  a connection that stood was lost midway (the answer is unknown)
    │   └── RemoteTimeoutError   69  a hop or a command did not answer in its budget
    │       └── DeadlineError    69  the whole command's own budget (--timeout) is used up
    ├── CannotCreateError        73  something could not be written (space, permission to create)
    ├── BusyError                75  somebody else is at it, or it is not the time; try later
    ├── RefusedError             77  permission, or the guard said no (names the rule)
    ├── ConfigError              78  the inventory is wrong (carries every fault of the file)
    └── Interrupted             130  Ctrl-C

Each carries what failed, where, and what to try. Codes follow sysexits.h.
"""

from __future__ import annotations

from typing import Any, ClassVar


class HostkitError(Exception):
    """Base of the tree: `what` failed, `where` (host, hop, file, line), and a `hint` (what to try)."""

    exit_code: ClassVar[int] = 70
    kind: ClassVar[str] = "internal"

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text} ({self.hint})" if self.hint else text

    def document(self) -> dict[str, Any]:
        """Return the `hostkit.error/1` document that `--json` prints."""
        return {
            "schema": "hostkit.error/1",
            "error": self.kind,
            "what": self.what,
            "where": self.where,
            "hint": self.hint,
            "exit": self.exit_code,
        }


class UsageError(HostkitError):
    """A flag or an argument is wrong."""

    exit_code = 64
    kind = "usage"


class DataError(HostkitError):
    """A file or a reply is not what it should be."""

    exit_code = 65
    kind = "data"


class ProtocolError(DataError):
    """A remote reply was not whole, so the answer is unknown; nothing may be concluded from it."""

    kind = "protocol"


class NotWholeError(DataError):
    """A checkpoint that was listed as whole is not when it is read by itself; `path` names it, `reason` says why."""

    def __init__(self, path: str, reason: str, *, host: str) -> None:
        what = f"not complete when it was read again: {reason}"
        super().__init__(what, where=f"{host}:{path}", hint="run the command again")
        self.path = path
        self.reason = reason


class JobEndedError(HostkitError):
    """A job ended without a result; `state` is the job's own word for how (`jobs.State`)."""

    exit_code = 65
    kind = "job-ended"

    def __init__(self, what: str, *, state: str, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(what, where=where, hint=hint)
        self.state = state


class UnreachableError(HostkitError):
    """A hop could not be reached, or the connection was lost. `hop` is its inventory name."""

    exit_code = 69
    kind = "unreachable"

    def __init__(
        self,
        what: str,
        *,
        hop: str,
        hops_reached: tuple[str, ...] = (),
        where: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(what, where=where or hop, hint=hint)
        self.hop = hop
        self.hops_reached = hops_reached  # names of the hops before it that did answer

    def document(self) -> dict[str, Any]:
        return super().document() | {
            "hop": self.hop,
            "stood": list(self.hops_reached),  # its name up to 0.1
            "hops_reached": list(self.hops_reached),
        }


class HostKeyError(UnreachableError):
    """A hop's host key is unknown or differs from the trusted one."""

    kind = "host-key"


class AuthError(UnreachableError):
    """A hop refused the login."""

    kind = "auth"


class LostError(UnreachableError):
    """A connection that stood was lost midway, so the answer is unknown. A read may be tried again."""

    kind = "lost"


class RemoteTimeoutError(UnreachableError):
    """A hop or a remote command did not answer within its budget."""

    kind = "timeout"


class DeadlineError(RemoteTimeoutError):
    """The budget of the whole command (`--timeout`) is used up: nothing is tried again."""


class CannotCreateError(HostkitError):
    """Something could not be written: no space, or no permission to create."""

    exit_code = 73
    kind = "cannot-create"


class BusyError(HostkitError):
    """Somebody else is at it, or it is not the time: try again later."""

    exit_code = 75
    kind = "busy"


class RefusedError(HostkitError):
    """Permission denied, or the guard refused a step. `rule` names the guard's rule."""

    exit_code = 77
    kind = "refused"

    def __init__(
        self, what: str, *, rule: str | None = None, where: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.rule = rule

    def document(self) -> dict[str, Any]:
        return super().document() | {"rule": self.rule}


class ConfigError(HostkitError):
    """The inventory is wrong. `faults` holds every fault of the file, one line each."""

    exit_code = 78
    kind = "config"

    def __init__(
        self, what: str, *, faults: tuple[str, ...] = (), where: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.faults = faults

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *(f"  {fault}" for fault in self.faults)])

    def document(self) -> dict[str, Any]:
        return super().document() | {"faults": list(self.faults)}


class Interrupted(HostkitError):  # noqa: N818  (a state, not a fault)
    """The user pressed Ctrl-C."""

    exit_code = 130
    kind = "interrupted"
