"""What keeps a job out of a run's way is applied for real: read back, and measured."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hostkit import jobs

SPIN = (
    "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); print('up', flush=True)\nwhile True: pass"
)
MIB = 2**20


@pytest.fixture
def busy_run() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A loop pinned to one core, in a session of its own, as a training run is."""
    cpu = max(os.sched_getaffinity(0))
    with subprocess.Popen(
        [sys.executable, "-c", SPIN, str(cpu)], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        yield process, cpu
        process.kill()


def ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def share(run: int, other: int, seconds: float = 1.5) -> float:
    """Return what the run got of the time that both got: other load of the machine does not matter to it."""
    before = ticks(run), ticks(other)
    ends = time.monotonic() + 30
    begin = time.monotonic()
    while time.monotonic() - begin < seconds or (ticks(run) - before[0]) + (ticks(other) - before[1]) < 50:
        assert time.monotonic() < ends, "the core was never theirs"
        time.sleep(0.05)
    mine, others = ticks(run) - before[0], ticks(other) - before[1]
    return mine / (mine + others)


def test_a_job_on_the_core_of_a_run_leaves_it_the_core(bench: Any, busy_run: Any) -> None:
    run, cpu = busy_run
    with subprocess.Popen(
        ["nice", "-n", "19", sys.executable, "-c", SPIN, str(cpu)],
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as rival:
        assert rival.stdout is not None and rival.stdout.readline() == b"up\n"
        without = share(run.pid, rival.pid)
        rival.kill()
    state = bench.launch(bench.spec(SPIN, str(cpu)))
    bench.wait_for_output(state.job, "up")
    assert state.identity is not None and state.identity.payload is not None
    beside = share(run.pid, state.identity.payload.pid)
    assert beside > 0.85, (beside, without, state.isolation_measures)
    grouped = Path("/proc/sys/kernel/sched_autogroup_enabled")
    if grouped.exists() and grouped.read_text().strip() == "1":
        assert without < 0.75, (beside, without)  # nice alone in another session: what the measures are for


def test_without_control_groups_the_session_level_still_leaves_the_run_its_core(
    bench_without_groups: Any, busy_run: Any
) -> None:
    bench = bench_without_groups
    run, cpu = busy_run
    state = bench.launch(bench.spec(SPIN, str(cpu)))
    bench.wait_for_output(state.job, "up")
    assert not state.applied("cpu-weight")
    assert share(run.pid, state.identity.payload.pid) > 0.85, state.isolation_measures


def test_every_isolation_measure_that_is_called_applied_is_read_back_in_the_payload(bench: Any) -> None:
    code = (
        "import os, json\n"
        "print(json.dumps({'nice': os.getpriority(os.PRIO_PROCESS, 0), 'cpus': len(os.sched_getaffinity(0)),\n"
        " 'oom': open('/proc/self/oom_score_adj').read(), 'autogroup': open('/proc/self/autogroup').read(),\n"
        " 'groups': open('/proc/self/cgroup').read()}))"
    )
    state = bench.run(bench.spec(code, limits={"cpus": 1, "memory_bytes": 200 * MIB}))
    seen = json.loads(bench.out(state.job))
    assert (seen["nice"], seen["cpus"], seen["oom"].strip()) == (19, 1, "1000")
    assert (
        state.applied("nice")
        and state.applied("cpus")
        and state.applied("oom-first")
        and state.applied("io-idle")
    )
    assert state.applied("autogroup") == seen["autogroup"].strip().endswith("nice 19")
    assert state.applied("memory-cgroup", "memory-watchdog")
    for measure, controller in (("memory-cgroup", "memory"), ("cpu-weight", "cpu")):
        groups = [line.split(":", 2) for line in seen["groups"].splitlines()]
        inside = any(
            f"/hostkit-{state.job}" in path and (controller in controllers.split(",") or not controllers)
            for _, controllers, path in groups
        )
        assert state.applied(measure) == inside, (measure, groups, state.isolation_measures)


def test_no_control_group_stays_behind(bench: Any) -> None:
    state = bench.run(bench.spec("print(1)", limits={"memory_bytes": 200 * MIB}))
    assert not list(Path("/sys/fs/cgroup").rglob(f"hostkit-{state.job}-{state.identity.supervisor.pid}"))


def test_groups_of_a_lost_supervisor_are_cleared_by_a_later_launch(
    bench: Any, waiting: Callable[..., Any]
) -> None:
    lost = bench.launch(bench.spec("import time; time.sleep(600)", limits={"memory_bytes": 200 * MIB}))
    os.kill(lost.identity.supervisor.pid, signal.SIGKILL)
    waiting(lambda: bench.inspect(lost.job).state == "lost", "the loss")
    later = jobs.JobSpec(kind="test", name="later", argv=("true",), limits={"memory_bytes": 200 * MIB})

    def cleared() -> bool:  # the kernel keeps a group until init has reaped the last that was in it
        assert bench.run(later, again=True).ok
        return not list(Path("/sys/fs/cgroup").rglob(f"hostkit-{lost.job}-{lost.identity.supervisor.pid}"))

    waiting(cleared, "the end of its groups")


# slowly: a watchdog that looks late must still come before the process's own limit
EATER = (
    "import time; print('up', flush=True); held = []\nwhile True: held.append(b'x' * 2**20); time.sleep(0.01)"
)


@pytest.mark.report("g3", "g11")
def test_a_payload_that_eats_memory_without_bound_ends_with_evidence(bench: Any) -> None:
    state = bench.run(bench.spec(EATER, limits={"memory_bytes": 100 * MIB}))
    assert state.state == "memory" and state.evidence, state


@pytest.mark.report("g3", "g11")
def test_without_control_groups_the_watchdog_ends_it_with_numbers(bench_without_groups: Any) -> None:
    bench = bench_without_groups
    state = bench.run(bench.spec(EATER, limits={"memory_bytes": 100 * MIB}))
    assert (state.state, state.reason) == ("memory", "ended for passing its memory limit")
    assert "bytes were resident in 1 processes, the limit is 104857600" in state.evidence[0]
    assert (
        not state.applied("memory-cgroup")
        and state.applied("memory-watchdog")
        and state.applied("memory-rlimit")
    )


def test_the_watchdog_counts_all_processes_of_the_job(bench_without_groups: Any) -> None:
    bench = bench_without_groups
    code = (
        "import os, time\n"
        "for _ in range(4):\n"
        "    if os.fork() == 0:\n"
        "        held = b'x' * (60 << 20); time.sleep(600)\n"
        "time.sleep(600)"
    )
    state = bench.run(bench.spec(code, limits={"memory_bytes": 150 * MIB}))
    assert (state.state, state.exit) == ("memory", None)


def test_what_forked_processes_share_is_counted_once_and_mapped_files_not_at_all(
    bench_without_groups: Any, tmp_path: Path
) -> None:
    bench = bench_without_groups
    (tmp_path / "weights").write_bytes(os.urandom(MIB) * 150)
    code = (
        "import mmap, os, sys, time\n"
        "held = b'x' * (60 << 20)\n"
        "mapped = mmap.mmap(os.open(sys.argv[1], os.O_RDONLY), 0, prot=mmap.PROT_READ)\n"
        "total = sum(mapped[i] for i in range(0, len(mapped), 4096))\n"
        "children = [os.fork() for _ in range(3)]\n"
        "time.sleep(1.5)"  # six looks of the watchdog
    )
    state = bench.run(bench.spec(code, str(tmp_path / "weights"), limits={"memory_bytes": 120 * MIB}))
    assert state.state == "done", state


def test_an_allocation_refused_under_the_limit_is_memory_with_the_line_that_says_so(
    bench_without_groups: Any,
) -> None:
    bench = bench_without_groups
    state = bench.run(bench.spec("bytearray(2 << 30)", limits={"memory_bytes": 100 * MIB}))
    assert (state.state, state.exit, state.evidence) == ("memory", 1, ("MemoryError",))


@pytest.mark.report("g11")
def test_a_kill_by_hand_under_a_memory_limit_is_not_called_memory(bench: Any) -> None:
    state = bench.launch(bench.spec("import time; time.sleep(600)", limits={"memory_bytes": 200 * MIB}))
    os.kill(state.identity.payload.pid, signal.SIGKILL)
    assert (ended := bench.wait(state.job)).state == "killed", ended
    assert "cause unknown" in ended.reason


def test_a_job_ends_before_the_disk_does(bench: Any) -> None:
    free = os.statvfs(bench.state.parent)
    state = bench.run(
        bench.spec(
            "import time; time.sleep(600)", limits={"disk_reserve_bytes": free.f_blocks * free.f_frsize}
        )
    )
    assert state.state == "killed" and "disk's reserve" in (state.reason or "")
    assert jobs.JobState.model_validate(state.model_dump()) == state


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_a_job_that_fills_the_disk_still_gets_its_last_status(bench: Any) -> None:
    bench.state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", bench.state], check=True)
    try:
        code = "import sys\nwhile True: sys.stdout.write('x' * 4096); sys.stdout.flush()"
        state = bench.run(bench.spec(code))
        assert state.state == "failed"
        assert (bench.state / "jobs" / state.job / "out").stat().st_size > 900_000
    finally:
        subprocess.run(["umount", bench.state], check=True)
