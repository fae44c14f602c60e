"""Which process is meant, for certain: recorded when it starts, compared before anything is done to it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from hostkit.identity import Identity
from hostkit.practice.root import JOB_MARK, MARK, Root

_PROC = Path("/proc")
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD among the flags of /proc/PID/stat


def _stat(pid: int | str) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; the name before may hold anything."""
    return (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()


def of(pid: int) -> Identity | None:
    """Return the identity of a process that lives, None for one that does not (or is a zombie)."""
    try:
        fields = _stat(pid)
        if fields[0] in "ZX":
            return None
        return Identity(
            boot_id=(_PROC / "sys/kernel/random/boot_id").read_text().strip(),
            pid_ns=(_PROC / "self/ns/pid").stat().st_ino,
            pid=pid,
            start_ticks=int(fields[19]),
            init_start_ticks=_init_start_ticks(),
        )
    except (OSError, IndexError):
        return None


def _init_start_ticks() -> int:
    try:
        return int(_stat(1)[19])
    except (OSError, IndexError):
        return 0  # /proc shows other users' processes to nobody here (hidepid)


def alive(who: Identity) -> bool:
    """Tell whether this very process lives, and not another one that got its number."""
    return of(who.pid) == who


def note(root: Root, what: str, pid: int) -> Identity | None:
    """Record a process of the fleet. None if it has ended already: then there is nothing to end."""
    who = of(pid)
    if who is not None:
        line = json.dumps({"what": what, "identity": who.model_dump()}) + "\n"
        descriptor = os.open(root.processes, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with contextlib.closing(os.fdopen(descriptor, "ab", buffering=0)) as file:
            file.write(line.encode())  # one write: several servers append to it
    return who


def noted(root: Root) -> list[tuple[str, Identity]]:
    """Return what `note` recorded, in order. A line that a kill cut short is skipped: its process is found by mark."""
    try:
        lines = root.processes.read_text().splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        with contextlib.suppress(ValueError):
            entry = json.loads(line)
            found.append((str(entry["what"]), Identity.model_validate(entry["identity"])))
    return found


def marked(root: Root) -> list[Identity]:
    """Return the processes whose environment says that they are this fleet's: descendants nobody could record.

    Either by the fleet's own mark, or by that of a job (which has a clean environment) with its folder here.
    """
    mark, job = os.fsencode(f"{MARK}={root.path}"), os.fsencode(f"{JOB_MARK}={root.path}/")
    found = []
    asked = [int(folder.name) for folder in _PROC.iterdir() if folder.name.isdigit()]
    for _ in range(50):
        unclear = []
        for pid in asked:
            variables = _variables(pid) if pid != os.getpid() else []
            if variables is None:
                unclear.append(pid)
            elif (
                any(one == mark or one.startswith(job) for one in variables) and (who := of(pid)) is not None
            ):
                found.append(who)
        if not unclear:
            break
        asked = unclear
        time.sleep(0.01)
    return found


def _variables(pid: int) -> list[bytes] | None:
    """Return a process's environment, empty where it is not ours to see; None amid its exec, when nobody can see it."""
    place = _PROC / str(pid)
    try:
        # looked at twice: between the two it may have come through
        for _ in range(2):
            if variables := (place / "environ").read_bytes():
                return variables.split(b"\0")
            if not (place / "cmdline").read_bytes():
                break
        else:
            return []  # it has words, and truly no variables
        fields = _stat(pid)
    except OSError:
        return []  # another user's, or gone
    return [] if fields[0] in "ZX" or int(fields[6]) & _KERNEL_THREAD else None


def send(who: Identity, number: signal.Signals) -> bool:
    """Signal this very process; False if it is not there any more."""
    try:
        handle = os.pidfd_open(who.pid)
    except ProcessLookupError:
        return False
    except OSError:  # a kernel or sandbox without pidfds: the check and the signal are two steps there
        if not alive(who):
            return False
        os.kill(who.pid, number)
        return True
    try:
        if not alive(who):  # looked at while the handle holds the process, so the number cannot change hands
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def end(processes: Iterable[Identity], *, patience: float = 3.0) -> list[Identity]:
    """End processes: ask, wait up to `patience` seconds, then kill. Return those that live even so."""
    living = [who for who in processes if send(who, signal.SIGTERM)]
    for who in living:
        send(who, signal.SIGCONT)  # a stopped process hears SIGTERM only when it goes on
    living = _wait(living, patience)
    for who in living:
        send(who, signal.SIGKILL)
    return _wait(living, 5.0)


def _wait(processes: list[Identity], seconds: float) -> list[Identity]:
    limit = time.monotonic() + seconds
    while (living := [who for who in processes if alive(who)]) and time.monotonic() < limit:
        time.sleep(0.02)
    return living
