"""A copy's own cpu group: real where one can be made, taken away whatever ends the copy, and never in its way."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from host import cgroups, copy_cgroup, process

REMOTE = Path(cgroups.__file__).parents[1]
PROGRAM = """
import json, os, subprocess, sys
sys.path.insert(0, {remote!r})
from host import cgroups, copy_cgroup, process
home = cgroups.groups("cpu")[:1]
with copy_cgroup.entered() as found:
    mine = cgroups.groups("cpu")[:1]
    again = subprocess.run([sys.executable, "-c", "import sys; sys.path.insert(0, {remote!r})\\n"
        "from host import copy_cgroup\\nwith copy_cgroup.entered() as found: print(found['detail'])"],
        capture_output=True, text=True).stdout
    print(json.dumps([found, mine, again]), flush=True)
    sys.stdin.read()
left = [os.path.exists(mine[0][0]), sorted(process.descendants(os.getpid()))]
print(json.dumps([*left, cgroups.groups("cpu")[:1] == home]), flush=True)
"""


def writable() -> bool:
    group = cgroups.ControlGroup("cpu", f"copy-{os.getpid()}")
    group.close()
    return group.path is not None


@pytest.mark.skipif(not writable(), reason="no cpu group can be made here")
@pytest.mark.parametrize("end", [signal.SIGKILL, None])
def test_a_copy_is_in_its_own_group_and_the_group_goes_whatever_ends_it(end: signal.Signals | None) -> None:
    program = PROGRAM.format(remote=str(REMOTE))
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as copy:
        assert copy.stdin is not None
        assert copy.stdout is not None
        found, ((path, second),), again = json.loads(copy.stdout.readline())
        assert found["real"], found
        assert Path(path).name == f"hostkit-copy-{copy.pid}"
        weight = Path(path, "cpu.weight" if second else "cpu.shares").read_text().strip()
        assert weight == ("2" if second else "20")
        assert "of what started this" in again  # what it starts makes no group of its own
        copy.stdin.close() if end is None else copy.send_signal(end)
        copy.wait()
        # at an orderly end nothing is left at once, nor anybody for others to reap
        said = copy.stdout.read()  # ends: who sweeps up holds none of the copy's streams open
        assert said == b"" if end else json.loads(said) == [False, [], True]
    until = time.monotonic() + 60
    while Path(path).exists():
        assert time.monotonic() < until, "the group was left behind"
        time.sleep(0.02)


def test_where_no_group_can_be_made_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "_groups_above", lambda _: [])
    with copy_cgroup.entered() as found:
        assert not found["real"]


def test_where_no_process_can_be_started_to_sweep_up_there_is_no_group_and_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Group:
        path = "/sys/fs/cgroup/hostkit-copy-1"
        closed = False

        def close(self) -> None:
            self.closed = True

    def full() -> int:
        raise BlockingIOError(errno.EAGAIN, "no more processes")

    group = Group()
    made = {"name": "cpu-weight", "real": True, "detail": group.path}
    monkeypatch.setattr(cgroups, "cpu_group", lambda _: (group, made))
    monkeypatch.setattr(os, "fork", full)
    before = len(os.listdir("/proc/self/fd"))
    with copy_cgroup.entered() as found:
        assert (found["real"], found["detail"]) == (False, os.strerror(errno.EAGAIN))
    assert group.closed
    assert len(os.listdir("/proc/self/fd")) == before


def test_with_both_versions_mounted_a_copy_that_is_in_a_group_makes_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = [("/sys/fs/cgroup/unified", True), ("/sys/fs/cgroup/cpu/hostkit-copy-7", False)]
    monkeypatch.setattr(cgroups, "groups", lambda _: both)
    with copy_cgroup.entered() as found:
        assert found["detail"] == "/sys/fs/cgroup/cpu/hostkit-copy-7, of what started this"


def test_a_place_for_groups_that_cannot_be_listed_is_no_error(tmp_path: Path) -> None:
    cgroups._clear_stale(str(tmp_path / "gone"))


@pytest.mark.skipif(not writable(), reason="no cpu group can be made here")
def test_a_group_that_cannot_be_entered_is_taken_away_at_once_and_nobody_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[cgroups.ControlGroup] = []

    def refused(group: cgroups.ControlGroup) -> bool:
        made.append(group)
        return False

    monkeypatch.setattr(cgroups.ControlGroup, "enter", refused)
    before = process.descendants(os.getpid())
    with copy_cgroup.entered() as found:
        assert not found["real"]
        assert not Path(str(made[0].path)).exists()
        assert process.descendants(os.getpid()) == before
