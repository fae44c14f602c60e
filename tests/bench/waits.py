"""Whom one thread waits for: the seconds in which it wants a core, by who has that core meanwhile (tracefs, root).

What the kernel counts for a thread (schedstat) does not tell whose doing a wait is; on a machine that others use as
well, that is what matters.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

_SWITCH = re.compile(
    r"\[(\d+)\].*? (\d+\.\d+): sched_switch: .*?prev_pid=(\d+) .*?prev_state=(\S+) ==> .*?next_pid=(\d+)"
)
_FORK = re.compile(r" sched_process_fork: .*? pid=(\d+) .*?child_pid=(\d+)")
BUFFER_KIB = 32 << 10  # of each core: some hundred thousand switches


class Waits:
    """A trace of its own of who runs when."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self) -> None:
        (self.folder / "trace").write_text("")
        (self.folder / "tracing_on").write_text("1")

    def end(self) -> list[str]:
        (self.folder / "tracing_on").write_text("0")
        return (self.folder / "trace").read_text(errors="replace").splitlines()


@contextlib.contextmanager
def tracing() -> Iterator[Waits]:
    """Make a trace that is nobody else's, and take it away at the end."""
    with tempfile.TemporaryDirectory() as mount:
        subprocess.run(["mount", "-t", "tracefs", "none", mount], check=True)
        folder = Path(mount) / "instances/hostkit-bench"
        try:
            folder.mkdir()
            (folder / "tracing_on").write_text("0")
            (folder / "buffer_size_kb").write_text(str(BUFFER_KIB))
            (folder / "trace_clock").write_text("mono")
            for event in ("sched_switch", "sched_process_fork"):
                (folder / f"events/sched/{event}/enable").write_text("1")
            yield Waits(folder)
        finally:
            with contextlib.suppress(OSError):
                folder.rmdir()
            subprocess.run(["umount", mount], check=True)


def waited_for(
    lines: list[str], thread: int, roots: dict[int, str], is_kernel: Callable[[int], bool]
) -> defaultdict[str, float]:
    """Return the seconds that the thread ran, and that it waited while somebody had its core, by who that was.

    A process counts by the name of the root that it descends from; others are "kernel" or "others".
    """
    names, seconds = dict(roots), defaultdict[str, float](float)
    core, since, holder = -1, 0.0, -1  # where it waits; -1: it does not
    came = 0.0
    for line in lines:
        switch = _SWITCH.search(line)
        if switch is None:
            fork = _FORK.search(line)
            if fork and int(fork[1]) in names:
                names[int(fork[2])] = names[int(fork[1])]
            continue
        cpu, at, before, state, after = (
            int(switch[1]),
            float(switch[2]),
            int(switch[3]),
            switch[4],
            int(switch[5]),
        )
        if core >= 0 and (cpu == core or after == thread):
            kernel = holder == 0 or is_kernel(holder)
            who = names.get(holder, "kernel" if kernel else "others")
            seconds[who] += at - since
            since, holder = at, after
        if after == thread:
            core, came = -1, at
        elif before == thread:
            seconds["ran"] += at - came if came else 0.0
            came = 0.0
            if state.startswith("R"):
                core, since, holder = cpu, at, after
    return seconds
