"""A copy's own cpu group, of the lowest weight, where one can be made; whatever ends the copy, the group goes with it.

Travels to hosts: standard library only, Python 3.8 or newer. Nothing is written but into the kernel's control groups,
so that it may be done on a training host as well.
"""

from __future__ import annotations

import os

import control_groups
import jobprocess
from low_priority import Lever, lever

NEEDS = ("control_groups", "jobprocess", "low_priority")


def enter() -> Lever:
    """Move this process, and so all that it starts, into a group of its own; say if that was real. Never raises."""
    for path, _ in control_groups.groups("cpu"):  # with both versions mounted, ours may be in either
        if os.path.basename(path).startswith("hostkit-copy-"):
            return lever("cpu-weight", True, "%s, of what started this" % path)
    group, found = control_groups.cpu_group("copy-%d" % os.getpid())
    if group.path is None:
        return found
    try:
        _watched(group)
    except OSError as error:  # no process or descriptor is left here for it, which must not cost the copy
        group.close()
        return dict(found, real=False, detail=os.strerror(error.errno or 0))
    if not group.enter():
        group.close()
        return dict(found, real=False, detail=group.why)
    return found


def _watched(group: control_groups.ControlGroup) -> None:
    """Start, outside the group, who takes it away at our end."""
    alive, ours = os.pipe()  # ours is closed by our end, however that comes
    try:
        if os.fork() == 0:
            _sweep(group, alive, ours)
    except OSError:
        os.close(ours)
        raise
    finally:
        os.close(alive)


def _sweep(group: control_groups.ControlGroup, alive: int, ours: int) -> None:
    """Wait outside the group for the end of the copy, then take its group away; holds nothing else open."""
    try:
        os.setsid()
        os.close(ours)
        highest = int((jobprocess.read("/proc/self/status") or b"").split(b"FDSize:")[1].split()[0])
        os.closerange(0, alive)
        os.closerange(alive + 1, highest + 1)
        os.read(alive, 1)
        for _ in range(50):  # what it had started ends a moment after it
            group.close()
            if not os.path.isdir(str(group.path)):
                break
    finally:
        os._exit(0)
