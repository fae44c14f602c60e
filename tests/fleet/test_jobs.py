"""Jobs on a real host: they outlive the session that launched them, end alone, and leave nothing running."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from hostkit.errors import CannotCreateError
from hostkit.inventory import load
from hostkit.jobs import JobLimits, JobSpec, JobState, Launcher, Supervisor
from hostkit.transport.connections import Connections
from tests.fleet.fleet import Fleet
from tests.fleet.processes import until

pytestmark = pytest.mark.fleet

MIB = 1 << 20


@contextlib.contextmanager
def ct129(fleet: Fleet) -> Iterator[Launcher]:
    """Connect afresh, as each hostkit command does, and close again."""
    inventory = load(fleet.inventory_path)
    with Connections(inventory) as connections:
        yield Supervisor(connections.transport("ct129"), inventory.hosts["ct129"])


def spec(*argv: str, **limits: Any) -> JobSpec:
    return JobSpec(kind="test", name="job", argv=argv, limits=JobLimits(**limits))


def finished(fleet: Fleet, job: str, seconds: float = 120) -> JobState:
    with ct129(fleet) as launcher:
        return launcher.follow(job, timeout=seconds)


def no_more(fleet: Fleet, *argv: str) -> None:
    until(lambda: list(argv) not in fleet.processes("ct129").values(), f"the end of {argv}")


@pytest.mark.report("e19")
def test_a_launch_returns_at_once_and_the_job_goes_on_after_the_connection(fleet: Fleet) -> None:
    # the grandchild keeps the streams that it was given
    job = spec("sh", "-c", "sleep 4000 & while [ ! -e /root/go ]; do sleep 0.1; done; echo done; exit 3")
    began = time.monotonic()
    with ct129(fleet) as launcher:
        started = launcher.start(job)
    assert time.monotonic() - began < 60
    assert started.state == "running"
    fleet.settle()
    fleet.sh("ct129", ["touch", "/root/go"])
    ended = finished(fleet, job.id)
    assert (ended.state, ended.exit) == ("failed", 3)
    with ct129(fleet) as launcher:
        assert launcher.tail(job.id)[0] == b"done\n"
    no_more(fleet, "sleep", "4000")


@pytest.mark.report("g9")
def test_two_launches_of_one_job_at_once_start_it_once(fleet: Fleet) -> None:
    job = spec("sleep", "4321")
    states: list[JobState] = []

    def start() -> None:
        with ct129(fleet) as launcher:
            states.append(launcher.start(job))

    threads = [threading.Thread(target=start) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(150)
    assert sorted(state.attached for state in states) == [False, True, True]
    until(lambda: ["sleep", "4321"] in fleet.processes("ct129").values(), "the job's process")
    assert list(fleet.processes("ct129").values()).count(["sleep", "4321"]) == 1
    with ct129(fleet) as launcher:
        assert [found.job for found in launcher.list_jobs()] == [job.id]
        assert launcher.cancel(job.id).state == "cancelled"
    no_more(fleet, "sleep", "4321")


def test_a_memory_limit_is_kept_by_a_control_group_and_named_as_the_cause(fleet: Fleet) -> None:
    hog = "print(len(bytearray(600 << 20)))"
    job = spec("/usr/bin/python3", "-c", hog, memory_bytes=200 * MIB)
    with ct129(fleet) as launcher:
        launcher.start(job)
    ended = finished(fleet, job.id)
    assert ended.state == "memory", ended
    assert ended.evidence
    left = fleet.out("ct129", "find", "/sys/fs/cgroup", "-name", "hostkit-*")
    assert left == ""


@pytest.mark.report("g11")
def test_each_way_to_end_a_job_is_called_by_its_name(fleet: Fleet) -> None:
    by_time = spec("sleep", "1001", wall_seconds=1, grace_seconds=1)
    by_hand = spec("sleep", "1002")
    with ct129(fleet) as launcher:
        launcher.start(by_time)
        started = launcher.start(by_hand)
        assert started.identity
        assert started.identity.payload
        fleet.sh("ct129", ["kill", "-9", str(started.identity.payload.pid)])
        assert launcher.follow(by_time.id, timeout=120).state == "timeout"
        killed = launcher.follow(by_hand.id, timeout=120)
    assert (killed.state, killed.signal) == ("killed", 9)


@pytest.mark.report("a17")
def test_cancelling_ends_the_jobs_own_processes_and_no_others(fleet: Fleet) -> None:
    words = ["sleep", "2222"]
    stranger = fleet.start_process("ct129", words)
    job = spec("sh", "-c", "sleep 2222 & sleep 2222; :")
    with ct129(fleet) as launcher:
        launcher.start(job)
        until(lambda: list(fleet.processes("ct129").values()).count(words) == 3, "the job's processes")
        assert launcher.cancel(job.id).state == "cancelled"
    assert [pid for pid, argv in fleet.processes("ct129").items() if argv == words] == [stranger]


@pytest.mark.report("g1")
def test_a_job_whose_host_was_restarted_is_lost_and_not_still_running(fleet: Fleet) -> None:
    job = spec("sleep", "3333")
    with ct129(fleet) as launcher:
        launcher.start(job)
    fleet.stop("ct129")
    fleet.start("ct129")
    fleet.listen(fleet.slot.outer(129))
    with ct129(fleet) as launcher:
        assert launcher.inspect(job.id).state == "lost"


def test_a_job_sees_no_gpu_and_runs_at_the_lowest_priority(fleet: Fleet) -> None:
    job = spec("sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES."; nice; cat /proc/self/oom_score_adj', cpus=1)
    with ct129(fleet) as launcher:
        launcher.start(job)
    assert finished(fleet, job.id).ok
    with ct129(fleet) as launcher:
        assert launcher.tail(job.id)[0] == b".\n19\n1000\n"


def test_a_job_that_does_not_fit_on_the_disk_fails_and_says_so(fleet: Fleet) -> None:
    fleet.fill_disk("ct129", "/root/.local/state", free=0)
    with ct129(fleet) as launcher, pytest.raises(CannotCreateError) as caught:
        launcher.start(spec("true"))
    assert caught.value.where == "ct129"
