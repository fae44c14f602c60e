"""Only what names this very process, after its start, proves that the kernel killed it for memory."""

from __future__ import annotations

import pytest

from jobs import oom

KILL = (
    b"3,1021,99000000,-;Memory cgroup out of memory: Killed process 412 (python3) total-vm:9kB, anon-rss:8kB\n"
    b" SUBSYSTEM=x\n"
)


@pytest.mark.report("g11")
@pytest.mark.parametrize(
    ("record", "pid", "since", "known"),
    [
        (KILL, 412, 90.0, True),
        (KILL, 41, 90.0, False),
        (KILL, 4123, 90.0, False),
        (KILL, 412, 200.0, False),
        (b"6,1,99000000,-;python3 invoked oom-killer\n", 412, 90.0, False),
    ],
)
def test_a_line_of_the_kernels_log_is_proof_only_for_its_own_process(
    record: bytes, pid: int, since: float, known: bool
) -> None:
    said = oom.killed_in(record, pid, since)
    assert (said is not None) == known
    assert said is None or "\n" not in said
