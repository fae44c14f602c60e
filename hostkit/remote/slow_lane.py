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
    """Move this process, and so all that it starts, into a group of its own; say whether that was real."""
    mine = [path for path, _ in control_groups.groups("cpu")[:1]]
    if mine and os.path.basename(mine[0]).startswith("hostkit-copy-"):
        return lever("cpu-weight", True, "%s, of what started this" % mine[0])
    group, found = control_groups.cpu_group("copy-%d" % os.getpid())
    if group.path is None:
        return found
    alive, ours = os.pipe()  # ours is closed by our end, however that comes
    if os.fork() == 0:
        _sweep(group, alive, ours)
    os.close(alive)
    if not group.enter():
        group.close()
        return dict(found, real=False, detail=group.why)
    return found


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
