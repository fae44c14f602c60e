"""Which process is meant, whether it is still that one, and how to signal it and no other.

Travels to hosts: standard library only, Python 3.8+.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Dict, List, Optional, Set

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_PIDFD_SEND_SIGNAL, _PIDFD_OPEN = 424, 434  # the same numbers on every architecture that Linux numbers anew
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD among the flags of /proc/PID/stat
_TO_GROUP = 4  # PIDFD_SIGNAL_PROCESS_GROUP, since Linux 6.9


def libc() -> Any:
    """Return the C library, or None where this Python was built without ctypes."""
    try:
        import ctypes

        return ctypes.CDLL(None, use_errno=True)
    except (ImportError, OSError):
        return None


def prctl(option: int, value: int) -> bool:
    """Call prctl(2); say whether it worked."""
    library = libc()
    return library is not None and library.prctl(option, value, 0, 0, 0) == 0


def read(path: str, limit: int = 1 << 20) -> Optional[bytes]:
    """Return the first bytes of a file, or None when it cannot be read. A fifo is as an empty file: no waiting."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return file.read(limit)
    except OSError:
        return None


def stat_fields(pid: int) -> Optional[List[str]]:
    """Return the fields of /proc/PID/stat from the third on (state, ppid, pgrp, session, …), or None.

    The second, the name, may hold spaces and parentheses, so the fields are counted from its end.
    """
    data = read("/proc/%d/stat" % pid)
    if not data or b")" not in data:
        return None
    return data[data.rindex(b")") + 2 :].decode("ascii", "replace").split()


def boot_id() -> str:
    return (read("/proc/sys/kernel/random/boot_id") or b"").decode("ascii", "replace").strip()


def identity(pid: int) -> Optional[Dict[str, Any]]:
    """Return who `pid` is: boot, pid namespace, pid, start ticks, start ticks of pid 1; None when it is gone."""
    fields = stat_fields(pid)
    if fields is None or fields[0] in "ZX":
        return None
    first = stat_fields(1)
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        namespace = 0
    return {
        "boot_id": boot_id(),
        "pid_ns": namespace,
        "pid": pid,
        "start_ticks": int(fields[19]),
        "init_start_ticks": int(first[19]) if first else 0,
    }


def whereabouts(known: Dict[str, Any]) -> str:
    """Say of a recorded identity: 'alive', 'gone', 'rebooted' (gone with its boot) or 'elsewhere' (cannot tell)."""
    here = identity(os.getpid())
    if here is None:
        return "elsewhere"
    if known.get("boot_id") != here["boot_id"]:
        return "rebooted"
    if known.get("pid_ns") != here["pid_ns"]:
        return "elsewhere"
    if known.get("init_start_ticks") != here["init_start_ticks"]:
        return "rebooted"
    now = identity(int(known["pid"]))
    return "alive" if now is not None and now["start_ticks"] == known.get("start_ticks") else "gone"


def send(known: Dict[str, Any], number: int, group: bool = False) -> bool:
    """Signal the process of a recorded identity (`group`: the process group that it leads); False when it is gone.

    The pidfd is opened first and the identity proven after, so what is signalled is what was proven. Without
    one (before Linux 5.3, or no ctypes) the signal follows the proof at once.
    """
    pid = int(known["pid"])
    if pid <= 1:
        return False
    handle = _pidfd(pid)
    try:
        if whereabouts(known) != "alive":
            return False
        fields = stat_fields(pid)
        if group and (fields is None or int(fields[2]) != pid):
            return False
        if handle is not None and _send_by(handle, number, _TO_GROUP if group else 0):
            return True
        try:
            (os.killpg if group else os.kill)(pid, number)
        except ProcessLookupError:
            return False
        return True
    finally:
        if handle is not None:
            os.close(handle)


def _pidfd(pid: int) -> Optional[int]:
    library = libc()
    handle = library.syscall(_PIDFD_OPEN, pid, 0) if library is not None else -1
    return handle if handle >= 0 else None


def _send_by(handle: int, number: int, flags: int) -> bool:
    library = libc()
    return library is not None and library.syscall(_PIDFD_SEND_SIGNAL, handle, number, None, flags) == 0


def gone(known: List[Dict[str, Any]], patience: float) -> bool:
    """Wait until none of these recorded processes lives; one that was killed may need the CPU to end."""
    ends = time.monotonic() + patience
    while any(whereabouts(one) == "alive" for one in known):
        if time.monotonic() > ends:
            return False
        time.sleep(0.02)
    return True


def descendants(root: int) -> Set[int]:
    """Return the pids of all descendants of `root`, zombies left out."""
    children = _children_by_kernel if os.path.exists("/proc/self/task/%d/children" % os.getpid()) else None
    table = None if children else _parents()
    found: Set[int] = set()
    waiting = [root]
    while waiting:
        parent = waiting.pop()
        below = (
            children(parent) if children else [pid for pid, ppid in (table or {}).items() if ppid == parent]
        )
        for pid in below:
            if pid not in found:
                found.add(pid)
                waiting.append(pid)
    return {pid for pid in found if (stat_fields(pid) or ["X"])[0] not in "ZX"}


def _children_by_kernel(pid: int) -> List[int]:
    found: List[int] = []
    try:
        threads = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return found
    for thread in threads:
        found += [int(word) for word in (read("/proc/%d/task/%s/children" % (pid, thread)) or b"").split()]
    return found


def _parents() -> Dict[int, int]:
    table: Dict[int, int] = {}
    for pid in everyone():
        fields = stat_fields(pid)
        if fields:
            table[pid] = int(fields[1])
    return table


def everyone() -> List[int]:
    """Return all pids that can be seen here."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def marked(marker: bytes) -> List[int]:
    """Return the living processes whose environment holds exactly `marker` (NAME=value)."""
    found, asked = [], everyone()
    for _ in range(50):
        unclear = []
        for pid in asked:
            variables = _variables(pid)
            if variables is None:
                unclear.append(pid)
            elif marker in variables and identity(pid) is not None:
                found.append(pid)
        if not unclear:
            break
        asked = unclear
        time.sleep(0.01)
    return found


def _variables(pid: int) -> Optional[List[bytes]]:
    """Return a process's environment, empty where it may not be seen; None amid its exec, when nobody can see it."""
    for _ in range(2):  # between the two looks it may have come through
        variables = read("/proc/%d/environ" % pid)
        if variables or variables is None:
            return (variables or b"").split(b"\0")
        if not read("/proc/%d/cmdline" % pid):
            break
    else:
        return []  # it has words, and truly no variables
    fields = stat_fields(pid)
    return [] if fields is None or fields[0] in "ZX" or int(fields[6]) & _KERNEL_THREAD else None


def resident(pids: Set[int]) -> int:
    """Return the bytes of memory that these processes hold and that cannot be dropped: not mapped file pages.

    What forked processes share is counted once: where the quick sum is too high because of it, the exact
    one (proportional, from smaps_rollup) costs a walk of the page tables, so it is `resident_exact`.
    """
    return sum(_kib(pid, "status", (b"RssAnon:", b"RssShmem:")) for pid in pids) * 1024


def resident_exact(pids: Set[int]) -> int:
    """Return the same, with shared pages divided among their holders; the quick sum where that is unknown."""
    exact = sum(_kib(pid, "smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:")) for pid in pids) * 1024
    return exact or resident(pids)


def _kib(pid: int, name: str, keys: Any) -> int:
    total = 0
    for line in (read("/proc/%d/%s" % (pid, name)) or b"").splitlines():
        if line.startswith(keys):
            total += int(line.split()[1])
    return total


def signal_name(number: int) -> str:
    """Return SIGKILL for 9, and so on."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number
