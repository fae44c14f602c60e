"""The job commands, run as a person runs them: exit codes, documents, and text that can do nothing to a terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hostkit.jobs.cancel import compare_runs
from hostkit.liveness.status import TrainStatus

MAIN = "from hostkit.cli import main; main()"


@pytest.fixture
def hostkit(bench: Any, tmp_path: Path) -> Any:
    """Run a hostkit command against an inventory of this machine, and a host that nobody can reach."""
    inventory = tmp_path / "fleet.yaml"
    inventory.write_text(
        f"hostkit: 1\narchive: {tmp_path}/archive\nhosts:\n"
        f"  here: {{local: true, python: {sys.executable}, state: {bench.state}}}\n"
        "  away: {address: 127.0.0.1, port: 1, timeouts: {connect: 2s}}\n"
        "runs:\n  drafter: {host: here, process: {script: no_such_train.py}}\n"
        "evals:\n  drafter: {run: drafter, host: here, workspace: /w, python: /usr/bin/python3, target: {model: /m}}\n"
    )

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "xdg"), "HOSTKIT_INVENTORY": str(inventory)}
        return subprocess.run(
            [sys.executable, "-c", MAIN, *argv],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=env,
            timeout=120,
            check=False,
        )

    return run


def document(done: subprocess.CompletedProcess[str], exit_code: int = 0) -> dict[str, Any]:
    assert done.returncode == exit_code, done
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_an_empty_host_has_no_jobs(hostkit: Any) -> None:
    done = hostkit("job-list")
    assert (done.returncode, done.stdout) == (0, "no jobs\n")
    assert document(hostkit("job-list", "--json")) == {
        "schema": "hostkit.jobs/1",
        "jobs": [],
        "unreachable": [],
    }


def test_jobs_are_listed_logged_and_cancelled_by_the_beginning_of_their_id(
    hostkit: Any, bench: Any, tmp_path: Path
) -> None:
    state = bench.launch(
        bench.spec("import time; print('up\\n\\x1b[31m[red]x', flush=True); time.sleep(600)", name="a [b]")
    )
    bench.wait_for_output(state.job, "x")
    listed = hostkit("job-list")
    assert state.job in listed.stdout and "running" in listed.stdout and "a [b]" in listed.stdout
    log = hostkit("job-log", state.job[:6])
    assert log.returncode == 0 and log.stdout.endswith("up\n[red]x\n") and "\x1b" not in log.stdout
    shown = document(hostkit("job-log", state.job[:6], "--lines", "1", "--json"))
    assert (shown["lines"], shown["cut"]) == (["\x1b[31m[red]x"], True)
    plan = document(hostkit("job-cancel", state.job[:6], "--dry-run", "--json"))
    assert [effect["kind"] for effect in plan["steps"][0]["effects"]] == ["writes", "signals", "signals"]
    assert bench.inspect(state.job).state == "running"
    done = document(hostkit("job-cancel", state.job[:6], "--json"))
    assert (done["schema"], done["job"]["state"]) == ("hostkit.job-cancel/1", "cancelled")
    assert done["runs_changed"] == [], "a run that was not seen has not changed"
    assert "drafter: not known whether it is the same" in done["runs_not_known"][0]
    assert document(hostkit("job-cancel", state.job, "--json"))["job"]["state"] == "cancelled"
    journal = (tmp_path / "xdg" / "hostkit" / "journal.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in journal] == ["job-cancel", "job-cancelled", "job-cancelled"]


def look(verdict: str, pid: int | None = None) -> TrainStatus:
    processes = []
    if pid is not None:
        who = {"boot_id": "b", "pid_ns": 1, "pid": pid, "start_ticks": 5, "init_start_ticks": 1}
        processes = [{
            "identity": who, "pid": pid, "namespace": "ct200", "role": "trainer", "known_by": "script", "state": "R",
            "age": 1.0, "cpu_seconds": 1.0, "uid": 0, "argv": ["t"], "exe": None, "cwd": None,
        }]  # fmt: skip
    return TrainStatus.model_validate(
        {"run": "drafter", "host": {"name": "ct200"}, "verdict": verdict, "exit": 0, "at": 1, "since": 1,
         "evidence": [], "processes": processes}
    )  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "changed", "unknown"),
    [
        (look("RUNNING", 7), look("STALLED", 7), 0, 0),
        (look("RUNNING", 7), look("RUNNING", 8), 1, 0),
        (look("RUNNING", 7), look("DEAD"), 1, 0),
        (look("DEAD"), look("DEAD"), 0, 0),
        (look("RUNNING", 7), look("UNKNOWN"), 0, 1),
        (look("UNKNOWN"), look("RUNNING", 7), 0, 1),
    ],
)
def test_a_run_has_changed_only_if_both_looks_saw_it(
    before: TrainStatus, after: TrainStatus, changed: int, unknown: int
) -> None:
    assert [len(lines) for lines in compare_runs([before], [after])] == [changed, unknown]


def test_an_attempt_is_named_by_its_number(hostkit: Any, bench: Any) -> None:
    spec = bench.spec("raise SystemExit(1)")
    bench.run(spec)
    bench.run(spec)
    assert document(hostkit("job-log", spec.id, "--json"))["job"]["attempt"] == 2
    assert document(hostkit("job-log", f"{spec.id}-1", "--json"))["job"]["attempt"] == 1


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["job-log", "0123"], 64, "no job 0123 on here"),
        (["job-log", "../x"], 64, "no job id"),
        (["job-cancel", "*"], 64, "no job id"),
        (["job-log", "0123", "--lines", "0"], 64, "--lines"),
        (["job-list", "--host", "nowhere"], 64, "hosts: here, away"),
        (["job-list", "--host", "away"], 69, "away"),
        (["job-log", "0123", "--host", "away"], 69, "away"),
    ],
)
def test_what_cannot_be_answered_has_its_own_exit_code(
    hostkit: Any, argv: list[str], code: int, words: str
) -> None:
    done = hostkit(*argv)
    assert done.returncode == code and words in done.stdout + done.stderr, done
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["job-log", "job-cancel"])
def test_a_job_is_the_word_after_the_command_and_help_may_stand_there_too(hostkit: Any, name: str) -> None:
    shown = hostkit(name, "--help")
    assert shown.returncode == 0 and f"hostkit {name} 3f9c" in shown.stdout
    assert "no job 0123 on here" in hostkit(name, "0123").stderr
    assert "no job 0123 on here" in hostkit(name, "--job", "0123").stderr
    assert hostkit(name).returncode == 64


def test_a_kill_from_outside_is_shown_with_its_signal(hostkit: Any, bench: Any) -> None:
    state = bench.launch(bench.spec("import time; time.sleep(600)"))
    os.kill(state.identity.payload.pid, signal.SIGKILL)
    bench.wait(state.job)
    assert "killed by signal 9 (SIGKILL), cause unknown" in hostkit("job-log", state.job).stdout
