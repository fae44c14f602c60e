"""Read more slowly while others on this host wait for a CPU, as the kernel counts it for each of their threads.

Travels to hosts: standard library only, Python 3.8 or newer. A priority or a group's weight orders those who share a
group. Whether the run loses time to us, or to whoever takes our bytes on the same machine, they do not tell; what its
threads wait for a CPU (/proc/…/schedstat, second figure) does. Where that is not counted nothing is slowed.
"""

from __future__ import annotations

import functools
import os
import time
from typing import Callable, Dict, Optional, Set, Tuple

from host import process

SHORT = 16 << 20  # bytes that are over before anybody would notice
LOOK = 0.05  # seconds between two looks at the threads that are followed
FADES = 0.7  # what a look before counts beside the next: one that waits a moment is no trend
CHOOSE = 2.0  # seconds after which others may be the busy ones
FOLLOWED = 8  # threads, the busiest
MOST = 4096  # threads that these are chosen from; a look takes some ten microseconds a thread
WORKING = 0.2  # of a core that a thread wants at least, to be followed
BORNE = 0.018  # of the time that they want a core: what they may wait for it beyond what they do without us
SLOWEST, FASTEST, GAIN = 0.7, 1.1, 0.15  # what the pace is multiplied with after a look, and how steeply
FLOOR = 16 << 20  # bytes a second; a copy has to end some day
REST = 1.0  # seconds after which a slowed copy rests, to see what they wait without it
DRAIN = 0.03  # seconds in which what is under way has arrived

Told = Tuple[int, int]  # nanoseconds that a thread ran, and that it waited for a core


class GivingWay:
    """Follows the busiest threads that are not ours, and keeps a reader from taking their time."""

    def __init__(
        self,
        proc: str = "/proc",
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.proc = proc
        self.clock = clock
        self.sleep = sleep
        self.pace: Optional[float] = None  # bytes a second; None: as fast as it goes
        self.fastest = 0.0  # that was seen
        self.without: Optional[float] = None  # what they wait while we rest
        self.rested = 0.0
        self.bytes = 0
        self.begun = False
        self.chosen = self.choose_at = self.looked = self.due = 0.0
        self.ran = self.waited = 0.0  # of late
        self.all: Dict[str, Told] = {}
        self.followed: Dict[str, Told] = {}
        self.forebears: Set[int] = set()

    def read(self, size: int) -> None:
        """Take notice of bytes that were read; wait where they came too fast."""
        self.bytes += size
        if not self.begun:
            if self.bytes >= SHORT:
                self._begin()
            return
        now = self.clock()
        if now - self.looked >= LOOK:
            self._judge(now)
        if self.pace:
            self.due = max(self.due, now - LOOK) + size / self.pace
            if self.due > now:
                self.sleep(self.due - now)

    def _begin(self) -> None:
        self.begun, self.bytes = True, 0
        self.forebears = self._forebears()
        self.all = self._threads()
        self.chosen = self.choose_at = self.looked = self.due = self.clock()

    def _judge(self, now: float) -> None:
        rate = self.bytes / (now - self.looked)
        self.fastest = max(self.fastest, rate)
        if now >= self.choose_at:
            self._choose(now)
        self.ran, self.waited = FADES * self.ran, FADES * self.waited
        self._look()
        self.looked, self.bytes = now, 0
        wanted = self.ran + self.waited
        if not self.followed or wanted <= 0:
            self.pace = self.without = None
            return
        waiting = self.waited / wanted
        if self.pace is None and waiting <= BORNE:
            return
        if self.without is None or now - self.rested >= REST:
            self._rest()
        factor = 1 + GAIN * (1 - (waiting - (self.without or 0.0)) / BORNE)
        self.pace = max(FLOOR, (self.pace or rate) * max(SLOWEST, min(FASTEST, factor)))
        if self.pace > 2 * self.fastest:
            self.pace = self.without = None

    def _rest(self) -> None:
        """Read nothing for a moment, and see what they wait for a core then: that much is not our doing."""
        self.sleep(DRAIN)
        self._look()
        self.ran = self.waited = 0.0
        self.sleep(LOOK)
        self._look()
        now = self.waited / max(1.0, self.ran + self.waited)
        self.without = now if self.without is None else (self.without + now) / 2
        self.rested = self.looked = self.clock()

    def _choose(self, now: float) -> None:
        """Follow whoever has been the busiest since the last choice."""
        before, self.all = self.all, self._threads()
        wanted = {path: sum(told) - sum(before[path]) for path, told in self.all.items() if path in before}
        least = WORKING * (now - self.chosen) * 1e9
        busy = sorted((path for path in wanted if wanted[path] >= least), key=lambda path: -wanted[path])
        busy = [path for path in busy[: 4 * FOLLOWED] if not self._serves_us(path)]
        self.followed = {path: self.followed.get(path, before[path]) for path in busy[:FOLLOWED]}
        self.chosen, self.choose_at = now, now + CHOOSE

    def _look(self) -> None:
        """Add what the followed have run and waited since the last look."""
        for path, (had_run, had_waited) in list(self.followed.items()):
            told = self._told(path)
            if told is None:
                del self.followed[path]
                continue
            self.ran, self.waited = self.ran + told[0] - had_run, self.waited + told[1] - had_waited
            self.followed[path] = told

    def _serves_us(self, path: str) -> bool:
        """Whether a thread works for our own copy: a process that we descend from (sshd), or a child of one (ssh).

        Children of the first process are everybody's.
        """
        number = int(path[len(self.proc) :].split("/")[1])
        return number in self.forebears or self._parent(number) in self.forebears - {1}

    def _parent(self, number: int) -> int:
        stat = process.read(os.path.join(self.proc, str(number), "stat")) or b""
        fields = stat.rpartition(b")")[2].split()
        return int(fields[1]) if len(fields) > 1 else 0

    def _forebears(self) -> Set[int]:
        found, number = set(), os.getpid()
        while number and number not in found:
            found.add(number)
            number = self._parent(number)
        return found

    def _threads(self) -> Dict[str, Told]:
        """Return what the kernel has counted for each thread of others; nothing where it counts nothing."""
        found: Dict[str, Told] = {}
        try:
            numbers = [name for name in os.listdir(self.proc) if name.isdigit()]
        except OSError:
            return found
        for number in numbers:
            tasks = os.path.join(self.proc, number, "task")
            try:
                threads = os.listdir(tasks)
            except OSError:
                continue
            for thread in threads:
                if len(found) >= MOST:
                    return found
                path = os.path.join(tasks, thread, "schedstat")
                told = self._told(path)
                if told is not None and told[0]:
                    found[path] = told
        return found

    @staticmethod
    def _told(path: str) -> Optional[Told]:
        try:
            ran, waited = (process.read(path) or b"").split()[:2]
            return int(ran), int(waited)
        except ValueError:
            return None


@functools.lru_cache(maxsize=1)
def shared() -> GivingWay:
    """Return the one of this process, whose readers follow each other."""
    return GivingWay()
