"""A copy's own cpu group, of the lowest weight, where one can be made; whatever ends the copy, the group goes with it.

Travels to hosts: standard library only, Python 3.8 or newer. Nothing is written but into the kernel's control groups,
so that it may be done on a training host as well.
"""

from __future__ import annotations

import contextlib
import os
from typing import Iterator, Optional, Tuple

from host import cgroups, process
from host.priority import Measure, measure


@contextlib.contextmanager
def entered() -> Iterator[Measure]:
    """Have what is done inside, and all that it starts, in a group of its own; yields whether that was real.

    Raises nothing for want of a group. At an orderly end nothing is left, nor a process that somebody else has to reap:
    in a container that may be the run.
    """
    lane, found = _enter()
    try:
        yield found
    finally:
        if lane is not None:
            lane.leave()


def _enter() -> Tuple[Optional[_Lane], Measure]:
    before = cgroups.groups("cpu")
    for path, _ in before:  # with both versions mounted, ours may be in either
        if os.path.basename(path).startswith("hostkit-copy-"):
            return None, measure("cpu-weight", True, "%s, of what started this" % path)
    group, found = cgroups.cpu_group("copy-%d" % os.getpid())
    if group.path is None:
        return None, found
    try:
        lane = _Lane(group)
    except OSError as error:  # no process or descriptor is left here for it, which must not cost the copy
        group.close()
        return None, dict(found, real=False, detail=os.strerror(error.errno or 0))
    lane.home = next((path for path, second in before if second == group.second and _holds_us(path)), None)
    if not group.enter():
        group.close()
        lane.leave()
        return None, dict(found, real=False, detail=group.why)
    return lane, found


def _holds_us(group: str) -> bool:
    return b"%d" % os.getpid() in (process.read(os.path.join(group, "cgroup.procs")) or b"").split()


class _Lane:
    """A group, and a process outside of it that takes it away at our end, whatever that is."""

    def __init__(self, group: cgroups.ControlGroup) -> None:
        self.group = group
        self.home: Optional[str] = None  # the group that we were in, where that can be seen
        alive, self.ours = os.pipe()  # ours is closed by our end, however that comes
        try:
            self.watcher = os.fork()
            if self.watcher == 0:
                _sweep(group, alive, self.ours)
        except OSError:
            os.close(self.ours)
            raise
        finally:
            os.close(alive)

    def leave(self) -> None:
        """Go back and take the group away; what cannot be done now is left to who watches."""
        if self.home is not None and self.group.leave(self.home):
            self.group.close()
        if not os.path.isdir(str(self.group.path)):
            os.close(self.ours)
            with contextlib.suppress(ChildProcessError):  # where SIGCHLD is ignored nobody has to be reaped
                os.waitpid(self.watcher, 0)


def _sweep(group: cgroups.ControlGroup, alive: int, ours: int) -> None:
    """Wait outside the group for the end of the copy, then take its group away; holds nothing else open."""
    try:
        os.setsid()
        os.close(ours)
        highest = int((process.read("/proc/self/status") or b"").split(b"FDSize:")[1].split()[0])
        os.closerange(0, alive)
        os.closerange(alive + 1, highest + 1)
        os.read(alive, 1)
        for _ in range(50):  # what it had started ends a moment after it
            group.close()
            if not os.path.isdir(str(group.path)):
                break
    finally:
        os._exit(0)
