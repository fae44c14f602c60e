"""Control groups of our own, for memory and CPU: only below what is mounted and writable already, and gone afterwards.

Travels to hosts: standard library only, Python 3.8+.
"""

from __future__ import annotations

import errno
import os
import re
import time
from typing import Dict, List, Optional, Tuple

from host import process
from host.priority import Measure, measure

_OURS = re.compile(
    r"hostkit-(?:[0-9a-f]{16}(?:-[0-9]+)?|copy)-([0-9]+)"
)  # a job, or a copy of hostkit 0.1; its supervisor or itself


class ControlGroup:
    """One controller's group of a job's own, below the group that this process is in; only where it is writable."""

    def __init__(self, controller: str, name: str) -> None:
        self.controller = controller
        self.path: Optional[str] = None
        self.why = "no writable %s group here" % controller
        self.second = False
        for parent, second in _groups_above(controller):
            path = os.path.join(parent, "hostkit-" + name)
            try:
                os.mkdir(path, 0o755)
            except FileExistsError:
                pass
            except OSError as error:
                self.why = "%s: %s" % (parent, os.strerror(error.errno or 0))
                continue
            knob = {"memory": ("memory.limit_in_bytes", "memory.max"), "cpu": ("cpu.shares", "cpu.weight")}[
                controller
            ]
            if os.access(os.path.join(path, knob[second]), os.W_OK):
                self.path, self.second = path, second
                _clear_stale(parent)
                return
            self.why = "%s has no %s" % (path, knob[second])
            remove(path)

    def write(self, name: str, value: str) -> bool:
        """Write a knob; say whether the kernel took it."""
        if self.path is None:
            return False
        try:
            with open(os.path.join(self.path, name), "w") as file:
                file.write(value)
        except OSError as error:
            self.why = "%s: %s" % (name, os.strerror(error.errno or 0))
            return False
        return True

    def enter(self) -> bool:
        """Move this process in; a group that cannot be entered is no measure."""
        return self.write("cgroup.procs", "0" if self.second else str(os.getpid()))

    def close(self) -> None:
        if self.path is not None:
            remove(self.path)


def _clear_stale(parent: str) -> None:
    """Take away the groups of supervisors that were killed; one with a process in it cannot be taken away."""
    try:
        names = os.listdir(parent)
    except OSError:
        return  # it may be written, and not be read
    for name in names:
        ours = _OURS.fullmatch(name)
        if ours is not None and process.identity(int(ours.group(1))) is None:
            remove(os.path.join(parent, name))


def memory_group(name: str, wanted: int) -> Tuple[ControlGroup, Measure]:
    """Make a memory group with this limit, swap included, and say whether it holds."""
    group = ControlGroup("memory", name)
    knob = "memory.max" if group.second else "memory.limit_in_bytes"
    real = group.write(knob, str(wanted))
    if real and group.second:
        group.write("memory.swap.max", "0")
        group.write("memory.oom.group", "1")
    elif real:
        group.write("memory.memsw.limit_in_bytes", str(wanted))
    if not real:
        group.close()
        group.path = None
    return group, measure(
        "memory-cgroup", real, "%s/%s %d" % (group.path, knob, wanted) if real else group.why
    )


def cpu_group(name: str) -> Tuple[ControlGroup, Measure]:
    """Make a cpu group of a fiftieth of the usual weight: the measure that works when a run has a group of its own.

    The smallest weight there is would leave a job on a busy machine without the time to start an interpreter.
    """
    group = ControlGroup("cpu", name)
    knob, value = ("cpu.weight", "2") if group.second else ("cpu.shares", "20")
    real = group.write(knob, value)
    if not real:
        group.close()
        group.path = None
    return group, measure("cpu-weight", real, "%s/%s %s" % (group.path, knob, value) if real else group.why)


def outer_group() -> Optional[str]:
    """Return the folder of the memory group that this process is in, where one can be seen."""
    for path, _ in groups("memory"):
        if any(os.path.exists(os.path.join(path, name)) for name in ("memory.events", "memory.oom_control")):
            return path
    return None


def kills(path: Optional[str]) -> int:
    """Return how many processes the kernel has killed in a group for want of memory."""
    if path is None:
        return 0
    for name in ("memory.events", "memory.oom_control"):
        for line in (process.read(os.path.join(path, name)) or b"").splitlines():
            words = line.split()
            if words and words[0] == b"oom_kill":
                return int(words[1])
    return 0


def groups(controller: str) -> List[Tuple[str, bool]]:
    """Return the folders of this process's groups in a controller, nearest first, with 'is it version 2'.

    Only what is mounted already counts: mounting a hierarchy would change the host for everybody on it.
    """
    membership: Dict[str, str] = {}
    for line in (process.read("/proc/self/cgroup") or b"").decode("utf-8", "replace").splitlines():
        number, names, path = line.split(":", 2)
        for name in names.split(",") if number != "0" else [""]:
            membership[name] = path
    found: List[Tuple[str, bool]] = []
    for line in (process.read("/proc/self/mountinfo") or b"").decode("utf-8", "replace").splitlines():
        words = line.split()
        if "-" not in words:
            continue
        root, mount, kind = words[3], words[4], words[words.index("-") + 1]
        if kind == "cgroup" and controller in words[-1].split(",") and controller in membership:
            found += [(path, False) for path in _upwards(mount, root, membership[controller])]
        elif kind == "cgroup2" and "" in membership:
            found += [(path, True) for path in _upwards(mount, root, membership[""])]
    return found


def _groups_above(controller: str) -> List[Tuple[str, bool]]:
    """Return the folders in which a group of our own may be made, nearest first.

    In version 1 that is our own group. In version 2 a group that holds processes takes no controlled children,
    so it is the nearest one above that hands the controller down.
    """
    found = groups(controller)
    first = [one for one in found if not one[1]][:1]
    return first + [
        (path, second)
        for path, second in found
        if second
        and controller.encode() in (process.read(os.path.join(path, "cgroup.subtree_control")) or b"").split()
    ]


def _upwards(mount: str, root: str, path: str) -> List[str]:
    """Return the folders from a group up to the root of its mount."""
    if root != "/" and (path == root or path.startswith(root + "/")):
        path = path[len(root) :]
    parts = [part for part in path.split("/") if part]
    if ".." in parts:  # the group lies outside of what is mounted here
        return [mount]
    return [os.path.join(mount, *parts[:count]) for count in range(len(parts), -1, -1)]


def remove(path: str) -> None:
    """Take an empty group away; a busy one is left to who finds it empty later."""
    for _ in range(20):
        try:
            os.rmdir(path)
            return
        except OSError as error:
            if error.errno != errno.EBUSY:
                return
        time.sleep(0.02)
