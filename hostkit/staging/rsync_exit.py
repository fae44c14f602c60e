"""What rsync's exit status and complaints mean for a checkpoint: every status but 0 is a failed copy (pure).

For a checkpoint 23 and 24 are failures too: the one file that was requested is not there whole.
"""

from __future__ import annotations

import re

from hostkit.errors import CannotCreateError, DataError, HostkitError, RefusedError, UnreachableError
from hostkit.sanitize import one_line

MEANINGS = {
    1: "syntax or usage",
    2: "protocol incompatibility",
    3: "files could not be selected",
    4: "requested action not supported",
    5: "the protocol could not be started",
    10: "socket I/O failed",
    11: "file I/O failed",
    12: "the data stream broke",
    13: "program diagnostics failed",
    14: "interprocess communication failed",
    20: "it was stopped by a signal",
    21: "a child process failed",
    22: "out of memory",
    23: "not everything was transferred",
    24: "files vanished",
    25: "a deletion limit was reached",
    30: "no data came for too long",
    35: "the daemon did not answer in time",
    126: "it could not be executed",
    127: "it was not found",
    255: "ssh failed",
}
LOST = (5, 10, 12, 14, 20, 21, 30, 35, 255)
NO_SPACE = ("no space left on device", "disk quota exceeded", "file too large")
READ_ONLY = "read-only file system"
BAD_DISK = "input/output error"
# as shells say it, and what starts it for them: nice, ionice, env, lxc-attach
NO_RSYNC = re.compile(
    r"command not found|rsync['\u2019\"]?: (applet )?not found|no such file or directory \(2\) on rsync"
    r"|\b(nice|ionice|env|exec|setsid|timeout|sudo)\b[^\n]{0,40}\brsync\b[^\n]{0,8}no such file"
    r"|failed to exec(ute)? .{0,3}rsync|sudo: rsync\b"
)
NOISE = ("is your shell clean", "protocol version mismatch", "unexpected tag", "protocol incompatibility")


def failure(exit: int, said: str, *, source: str, destination: str) -> HostkitError | None:
    """Return the error that an rsync from `source`, run on `destination`, stands for; None when it copied."""
    if exit == 0:
        return None
    text = said.lower()
    tail = last_lines(said)
    signal = f"signal {-exit}" if exit < 0 else f"signal {exit - 128}" if 128 < exit < 192 else None
    what = f"rsync failed ({exit}: {MEANINGS.get(exit, signal or 'no known status')})"
    message = f"{what}: {tail}" if tail else what
    if any(phrase in text for phrase in NO_SPACE) or (
        exit == 11 and READ_ONLY not in text and BAD_DISK not in text and "permission denied" not in text
    ):
        return CannotCreateError(
            f"disk full, or the disk refused a write; {message}",
            where=destination,
            hint="free space, then run the same command to resume",
        )
    if exit == 127 or NO_RSYNC.search(text):
        return CannotCreateError(
            f"rsync missing on {source if exit != 127 else f'{source} or {destination}'}; {message}",
            where=source,
            hint="install rsync there; hostkit installs nothing",
        )
    if READ_ONLY in text:
        return CannotCreateError(f"a disk is mounted read-only; {message}", where=destination)
    if BAD_DISK in text and exit in (11, 12, 22, 23):
        hint = "the disk of either host fails; its kernel's log says which"
        return DataError(f"a disk could not be read or written; {message}", where=source, hint=hint)
    if exit == 2 or any(phrase in text for phrase in NOISE):
        return UnreachableError(
            f"output from the login shell of {source} (or of a host on the way) corrupts the rsync stream; {message}",
            hop=source,
            where=destination,
            hint="its start files (.bashrc) must print nothing when no terminal is there",
        )
    if exit in (23, 24) and ("vanished" in text or "no such file" in text or exit == 24):
        return DataError(f"source vanished while it was copied; {message}", where=source, hint="choose again")
    if "permission denied" in text and exit in (3, 11, 23):
        return RefusedError(f"no permission; {message}", where=source)
    if signal or exit in LOST:
        return UnreachableError(
            f"the copy from {source} broke off; {message}",
            hop=source,
            where=destination,
            hint="run the same command to resume",
        )
    return DataError(message, where=destination)


def last_lines(said: str) -> str:
    """Return the last lines that say something, sanitized and on one line."""
    lines = [one_line(line).strip() for line in said.splitlines()]
    return "; ".join([line for line in lines if line][-3:])[-400:]
