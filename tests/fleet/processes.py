"""Processes by recorded identity: a pid counts only with its start ticks and its boot."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_ticks(pid: int) -> int | None:
    """Return when the process was started, in ticks since boot; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


@dataclass(frozen=True)
class Identity:
    """One process, once and for all."""

    boot: str
    pid: int
    ticks: int

    @classmethod
    def of(cls, pid: int) -> Identity:
        ticks = start_ticks(pid)
        if ticks is None:
            raise ProcessLookupError(pid)
        return cls(boot_id(), pid, ticks)

    def alive(self) -> bool:
        return self.boot == boot_id() and start_ticks(self.pid) == self.ticks

    def kill(self) -> None:
        """End it, and wait until it is gone (at least a zombie)."""
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(self.pid)  # holds on to the process, so the check cannot go stale
            try:
                if self.alive():
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            finally:
                os.close(handle)
        until(lambda: not self.alive(), f"the end of process {self.pid}")

    def document(self) -> dict[str, object]:
        return asdict(self)


def until(condition: Callable[[], object], what: str, *, seconds: float = 60.0, pause: float = 0.01) -> None:
    """Wait for a condition; TimeoutError says what was waited for."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(pause)


def within(init: int) -> Iterator[int]:
    """Yield the pids (as seen from here) that live in the pid namespace of `init`, not in one nested in it."""
    space = os.readlink(f"/proc/{init}/ns/pid")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if os.readlink(entry / "ns/pid") == space:
                    yield int(entry.name)


def argv(pid: int) -> list[str]:
    """Return the argv of a process; empty for a zombie or a kernel thread, or when it has gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="surrogateescape").split("\0")[:-1]
    except OSError:
        return []
