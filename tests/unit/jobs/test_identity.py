"""A job's record is held against the processes that live, and only what it names is ever signalled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from host import process as host_process
from hostkit import jobs
from hostkit.errors import RefusedError

TRAINER = (
    "import signal, sys, time\n"
    "for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:\n"
    "    try: signal.signal(number, lambda n, _: print('signal', n, flush=True))\n"
    "    except OSError: pass\n"
    "step = 0\n"
    "while True: step += 1; print('step', step, flush=True); time.sleep(0.02)"
)


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A run that writes a line for each step, and one for each signal that it gets."""
    log = tmp_path / "train.log"
    argv = [sys.executable, "-c", TRAINER, "train.py", "--eval-every", "500", "--out", "eval_runs"]
    with log.open("wb") as file, subprocess.Popen(argv, stdout=file, start_new_session=True) as process:
        yield process, log
        process.kill()


def steps(log: Path) -> int:
    return log.read_text().count("step")


@pytest.mark.report("a17", "g11")
def test_a_run_with_the_same_words_is_never_signalled_when_a_job_is_ended(
    bench: Any, trainer: Any, waiting: Callable[..., Any]
) -> None:
    process, log = trainer
    waiting(lambda: steps(log) > 2, "the run's first steps")
    before = host_process.identity(process.pid)
    words = ("train.py", "--eval-every", "500", "--out", "eval_runs")
    sleeper = "import time; time.sleep(600)"
    timed_out = bench.run(bench.spec(sleeper, *words, limits={"wall_seconds": 0.5, "grace_seconds": 0.5}))
    assert timed_out.state == "timeout"
    second = bench.launch(bench.spec(sleeper, *words, "again"))
    assert bench.launcher.cancel(second.job).state == "cancelled"
    third = bench.launch(bench.spec(sleeper, *words, "thrice"))
    os.kill(third.identity.supervisor.pid, signal.SIGKILL)
    waiting(lambda: bench.inspect(third.job).state == "lost", "the loss")
    bench.launcher.cancel(third.job)
    now = steps(log)
    waiting(lambda: steps(log) > now + 2, "the run's next steps")
    assert host_process.identity(process.pid) == before
    assert "signal" not in log.read_text()


def forged(bench: Any, **changes: Any) -> tuple[str, Path]:
    """Run a job to its end, and rewrite its record as if it had never written a status."""
    state = bench.run(bench.spec("print(1)", name=json.dumps(changes, default=str)))
    folder = bench.state / "jobs" / state.job
    # the last status stands a moment before its writer, which holds the claim, has ended
    assert host_process.gone([state.identity.supervisor.model_dump()], 100)
    (folder / "status.json").unlink()
    who = json.loads((folder / "identity.json").read_text())
    for part in ("supervisor", "payload"):
        who[part] |= changes
    (folder / "identity.json").write_text(json.dumps(who))
    return state.job, folder


def test_a_number_that_was_given_to_another_process_is_not_the_job(bench: Any, trainer: Any) -> None:
    process, log = trainer
    live = host_process.identity(process.pid)
    assert live is not None
    job, _ = forged(bench, pid=process.pid, start_ticks=live["start_ticks"] - 1)
    assert bench.inspect(job).state == "lost"
    assert bench.launcher.cancel(job).state == "lost"
    assert process.poll() is None and "signal" not in log.read_text()


def test_after_a_reboot_a_job_is_lost_and_the_boot_ids_say_why(bench: Any) -> None:
    job, _ = forged(bench, boot_id="00000000-0000-0000-0000-000000000000", pid=os.getpid())
    state = bench.inspect(job)
    assert (state.state, state.reason) == ("lost", "the host was started anew while it ran")
    assert "boot id then 00000000" in state.evidence[0]


def test_a_container_that_was_restarted_under_the_same_boot_is_a_new_start(bench: Any) -> None:
    job, _ = forged(bench, init_start_ticks=1, pid=os.getpid())
    assert bench.inspect(job).reason == "the host was started anew while it ran"


def test_a_job_of_another_pid_namespace_is_unknown_while_its_claim_is_held_and_is_not_signalled(
    bench: Any, trainer: Any
) -> None:
    import fcntl

    process, log = trainer
    job, folder = forged(bench, pid_ns=1, pid=process.pid)
    with (folder / "spec.json").open("r+") as claim:
        fcntl.flock(claim, fcntl.LOCK_EX)
        assert bench.inspect(job).state == "unknown"
        with pytest.raises(RefusedError, match="unknown"):
            bench.launcher.cancel(job)
    assert bench.inspect(job).state == "lost"
    assert process.poll() is None and "signal" not in log.read_text()


@pytest.mark.parametrize("name", ["status.json", "identity.json", "spec.json"])
@pytest.mark.parametrize(
    "text",
    ["", '{"state": "do', "[]", "\0" * 100, "[" * 100_000],
    ids=["empty", "cut", "list", "zeros", "nested"],
)
def test_a_damaged_record_is_unknown_and_starts_and_signals_nothing(bench: Any, name: str, text: str) -> None:
    job, folder = forged(bench)
    (folder / name).write_text(text)
    assert bench.inspect(job).state == "unknown"
    again = jobs.launch(bench.launcher, bench.spec("print(1)", name="{}"))
    assert (again.state, again.attached) == ("unknown", True)
    with pytest.raises(RefusedError):
        bench.launcher.cancel(job)


def test_a_launch_that_was_cut_before_its_payload_is_lost_and_makes_way(bench: Any) -> None:
    spec = bench.spec("print(1)")
    folder = bench.state / "jobs" / spec.id
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(json.dumps({"attempt": 1, "spec": spec.model_dump(mode="json")}))
    state = bench.inspect(spec.id)
    assert (state.state, state.evidence) == ("lost", ("nobody holds the claim",))
    assert bench.run(spec).attempt == 2


def test_a_job_started_by_a_launch_that_goes_on_is_starting(bench: Any) -> None:
    import fcntl

    spec = bench.spec("print(1)")
    folder = bench.state / "jobs" / spec.id
    folder.mkdir(parents=True)
    with (folder / "spec.json").open("w") as claim:
        fcntl.flock(claim, fcntl.LOCK_EX)
        json.dump({"attempt": 1, "spec": spec.model_dump(mode="json")}, claim)
        claim.flush()
        state = bench.inspect(spec.id)
        assert (state.state, state.reason) == ("running", "starting")


def test_the_identity_that_is_recorded_is_that_of_the_process(bench: Any) -> None:
    state = bench.launch(bench.spec("import time; time.sleep(600)"))
    for known in (state.identity.supervisor, state.identity.payload):
        assert host_process.identity(known.pid) == known.model_dump()
        assert host_process.whereabouts(known.model_dump()) == "alive"


@pytest.mark.parametrize("pid", [0, -1, 1])
def test_no_signal_is_ever_sent_to_everybody_or_to_the_first_process(pid: int) -> None:
    me = host_process.identity(os.getpid())
    assert me is not None
    assert not host_process.send(me | {"pid": pid}, 0)
    assert not host_process.send(me | {"pid": pid}, 0, group=True)


def test_a_zombie_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        known = host_process.identity(process.pid)
        assert known is not None and host_process.whereabouts(known) == "alive"
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert host_process.whereabouts(known) == "gone"
        assert not host_process.send(known, 0)
