"""A copy reads more slowly while others wait for a core because of it, and not because of what they wait for anyway."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from host import throttle
from host.throttle import FLOOR, GivingWay

MIB = 1 << 20
BLOCK = 4 * MIB
DISK = 400 * MIB  # bytes a second that the reader of these tests could have


class Host:
    """A process table of files, and a clock that moves only when somebody reads or sleeps."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        self.now = 100.0
        self.threads: dict[Path, list[float]] = {}  # nanoseconds run and waited
        # of each second that they want a core: what they wait for it while we read, and while we do not
        self.load: dict[Path, tuple[float, float]] = {}
        self.slept = 0.0

    def thread(
        self, pid: int, tid: int, *, parent: int, waiting: tuple[float, float] | None = (0.0, 0.0)
    ) -> Path:
        path = self.proc / f"{pid}/task/{tid}/schedstat"
        path.parent.mkdir(parents=True)
        (self.proc / f"{pid}/stat").write_text(f"{pid} (a (b) c) R {parent} 1 1 0")
        self.threads[path] = [1e9, 0.0]
        if waiting:
            self.load[path] = waiting
        self.tell()
        return path

    def tell(self) -> None:
        for path, (ran, waited) in self.threads.items():
            path.write_text(f"{ran:.0f} {waited:.0f} 7\n")

    def pass_on(self, seconds: float, *, reading: bool) -> None:
        self.now += seconds
        for path, (beside, without) in self.load.items():
            waiting = beside if reading else without
            self.threads[path][0] += (1 - waiting) * seconds * 1e9
            self.threads[path][1] += waiting * seconds * 1e9
        self.tell()

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.pass_on(seconds, reading=False)

    def way(self) -> GivingWay:
        return GivingWay(str(self.proc), lambda: self.now, self.sleep)

    def copy(self, way: GivingWay, seconds: float) -> float:
        """Read for a while; return the bytes a second that came."""
        began, came = self.now, 0
        while self.now - began < seconds:
            self.pass_on(BLOCK / DISK, reading=True)
            way.read(BLOCK)
            came += BLOCK
        return came / (self.now - began)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_beside_nobody_and_beside_who_does_not_wait_nothing_is_slowed(host: Host) -> None:
    host.thread(7, 7, parent=1, waiting=None)
    host.thread(8, 9, parent=1)
    assert host.copy(host.way(), 5) > 0.98 * DISK


def test_all_threads_are_looked_through_every_other_second_alone_also_where_none_is_busy(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.thread(7, 7, parent=1, waiting=None)
    way = host.way()
    looks: list[float] = []
    through = way._threads
    monkeypatch.setattr(way, "_threads", lambda: looks.append(host.now) or through())
    host.copy(way, 9)
    assert len(looks) <= 2 + 9 / throttle.CHOOSE


def test_while_the_run_waits_for_us_the_copy_goes_slower_and_faster_again_after(host: Host) -> None:
    run = host.thread(7, 8, parent=1)
    way = host.way()
    host.copy(way, 1)
    host.load[run] = (0.5, 0.0)
    host.copy(way, 2)
    slow = host.copy(way, 4)
    assert 0.9 * FLOOR <= slow < 0.2 * DISK, "they wait at most a few parts of a hundred; it rests, too"
    host.load[run] = (0.0, 0.0)
    host.copy(way, 5)
    assert host.copy(way, 5) > 0.98 * DISK


def test_what_they_wait_for_without_us_is_borne(host: Host) -> None:
    host.thread(7, 7, parent=1, waiting=(0.3, 0.3))
    way = host.way()
    host.copy(way, 5)
    assert way.without == pytest.approx(0.3, abs=0.01)
    assert host.copy(way, 5) > 0.8 * DISK, "but for the rests in which that is seen"


def test_who_serves_the_copy_itself_is_not_followed(host: Host) -> None:
    carrier, login, listener = 50, 40, 30
    host.thread(os.getpid(), os.getpid(), parent=carrier)
    host.thread(carrier, carrier, parent=login)
    host.thread(51, 51, parent=carrier)
    host.thread(login, login, parent=listener)
    host.thread(listener, listener, parent=1)
    run = host.thread(60, 60, parent=1)
    way = host.way()
    host.copy(way, 5)
    assert list(way.followed) == [str(run)]


def test_another_thread_that_became_the_busy_one_is_noticed(host: Host) -> None:
    first = host.thread(7, 7, parent=1)
    way = host.way()
    host.copy(way, 1)
    del host.load[first]
    second = host.thread(9, 9, parent=1, waiting=(0.4, 0.0))
    host.copy(way, 4.5)
    assert list(way.followed) == [str(second)]
    assert way.pace is not None


def test_one_that_ends_is_forgotten(host: Host) -> None:
    run = host.thread(7, 7, parent=1, waiting=(0.5, 0.0))
    way = host.way()
    host.copy(way, 1)
    assert way.pace is not None
    del host.load[run], host.threads[run]
    shutil.rmtree(host.proc / "7")
    assert host.copy(way, 5) > 0.95 * DISK


@pytest.mark.parametrize("told", ["", "0 0 0\n", "odd", "1\n"])
def test_where_the_kernel_does_not_count_nothing_is_slowed(host: Host, told: str) -> None:
    run = host.thread(7, 7, parent=1, waiting=None)
    host.tell = lambda: None  # type: ignore[method-assign]
    run.write_text(told)
    assert host.copy(host.way(), 5) > 0.98 * DISK


def test_a_short_copy_does_not_pause(host: Host) -> None:
    host.thread(7, 7, parent=1)
    way = host.way()
    for _ in range(throttle.SHORT // MIB - 1):
        way.read(MIB)
    assert host.slept == 0
