"""Jobs end to end on this machine: started, followed, ended; each way of ending is told apart, with evidence."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostkit import jobs
from hostkit.errors import DataError, RefusedError, UsageError

SLEEPER = "import time; print('up', flush=True); time.sleep(600)"


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def payload_pid(state: jobs.JobState) -> int:
    assert state.identity is not None and state.identity.payload is not None
    return state.identity.payload.pid


def supervisor_pid(state: jobs.JobState) -> int:
    assert state.identity is not None
    return state.identity.supervisor.pid


def test_a_job_that_ends_well_is_done_and_its_output_and_results_are_kept(bench: Any) -> None:
    code = (
        "import os, sys; print('out', os.getcwd()); print('err', file=sys.stderr)\n"
        "open(os.environ['HOSTKIT_RESULTS'] + '/r.json', 'w').write('{}')"
    )
    state = bench.run(bench.spec(code, cwd=str(bench.state.parent)))
    assert (state.state, state.exit, state.signal, state.attempt) == ("done", 0, None, 1)
    assert bench.out(state.job) == f"out {bench.state.parent}\n"
    assert bench.out(state.job, "err") == "err\n"
    assert bench.launcher.result_names(state.job) == ["r.json"]
    assert bench.launcher.fetch(state.job, "r.json") == b"{}"


@pytest.mark.parametrize("code", [1, 3, 127, 137, 255])
def test_an_exit_status_is_kept_as_it_is(bench: Any, code: int) -> None:
    state = bench.run(bench.spec(f"raise SystemExit({code})"))
    assert (state.state, state.exit, state.signal) == ("failed", code, None)


def test_a_payload_that_cannot_be_run_has_failed_with_the_reason(bench: Any) -> None:
    spec = jobs.JobSpec(kind="test", name="x", argv=("/no/such/python", "x.py"))
    state = bench.run(spec)
    assert (state.state, state.exit) == ("failed", 127)
    assert "/no/such/python" in (state.reason or "") and "No such file" in (state.reason or "")


def test_the_folder_is_private_and_holds_what_is_promised(bench: Any) -> None:
    state = bench.run(bench.spec("print('x')"))
    folder = bench.state / "jobs" / state.job
    assert {path.name for path in folder.iterdir()} == {
        "spec.json",
        "identity.json",
        "out",
        "err",
        "status.json",
        "results",
    }
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir() if path.is_file()} == {0o600}


@pytest.mark.report("e19")
def test_a_launch_returns_at_once_though_a_grandchild_keeps_every_stream(bench: Any) -> None:
    code = (
        "import subprocess, sys, os, stat\n"
        "assert stat.S_ISCHR(os.fstat(0).st_mode) and not sys.stdin.read()\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "print('up', child.pid, flush=True); child.wait()"
    )
    begin = time.monotonic()
    state = bench.launch(bench.spec(code))
    assert time.monotonic() - begin < 100  # and not the grandchild's ten minutes
    assert state.state == "running" and not gone(payload_pid(state))
    grandchild = int(bench.wait_for_output(state.job, "\n").split()[1])
    assert bench.launcher.cancel(state.job).state == "cancelled"
    assert gone(grandchild)


def foreign_files(pid: int, own: Path) -> list[str]:
    """Return what a process has open beside the empty device, pipes and what lies in its state folder."""
    links = [_link(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    return [link for link in links if link and not link.startswith(("/dev/null", str(own), "pipe:"))]


def _link(entry: Path) -> str | None:
    try:
        return os.readlink(entry)
    except FileNotFoundError:  # closed since it was listed
        return None


def test_a_job_is_in_its_own_session_with_no_descriptor_of_ours(
    bench: Any, waiting: Callable[..., Any]
) -> None:
    with (bench.state.parent / "lock").open("w") as lock:
        os.set_inheritable(lock.fileno(), True)
        state = bench.launch(bench.spec(SLEEPER))
        bench.wait_for_output(state.job, "up")  # an interpreter that starts has files of its own open
        pid = payload_pid(state)
        assert os.getsid(pid) == pid and os.getsid(supervisor_pid(state)) not in (pid, os.getsid(0))
        assert not foreign_files(pid, bench.state)
        # each second it has a file of /proc or of its control group open for a moment
        waiting(lambda: not foreign_files(supervisor_pid(state), bench.state), "a supervisor at rest")
        assert sorted(entry.name for entry in Path(f"/proc/{pid}/fd").iterdir()) == ["0", "1", "2"]


@pytest.mark.report("g11")
def test_a_job_past_its_wall_limit_has_timed_out_even_if_it_ignores_the_polite_signal(bench: Any) -> None:
    argv = ("sh", "-c", "trap '' TERM; while :; do sleep 600; done")
    limits = jobs.JobLimits(wall_seconds=2, grace_seconds=0.3)
    state = bench.run(jobs.JobSpec(kind="test", name="deaf", argv=argv, limits=limits))
    assert (state.state, state.signal) == ("timeout", signal.SIGKILL)
    assert "wall limit of 2 s" in (state.reason or "")


@pytest.mark.report("g11")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_payload_killed_by_somebody_else_is_killed_cause_unknown(
    bench: Any, number: signal.Signals
) -> None:
    state = bench.launch(bench.spec(SLEEPER))
    bench.wait_for_output(state.job, "up")
    os.kill(payload_pid(state), number)
    ended = bench.wait(state.job)
    assert (ended.state, ended.signal, ended.exit) == ("killed", number, None)
    assert ended.reason == f"killed by signal {int(number)} ({number.name}), cause unknown"


@pytest.mark.report("g1")
def test_killing_the_supervisor_ends_the_payload_and_the_job_is_lost(
    bench: Any, waiting: Callable[..., Any]
) -> None:
    state = bench.launch(bench.spec(SLEEPER))
    bench.wait_for_output(state.job, "up")
    os.kill(supervisor_pid(state), signal.SIGKILL)
    waiting(lambda: gone(payload_pid(state)), "the payload's end")
    ended = bench.inspect(state.job)
    assert ended.state == "lost" and "without a status" in (ended.reason or "")
    assert any(str(supervisor_pid(state)) in line for line in ended.evidence)


def test_strays_of_a_lost_job_are_named_block_a_second_start_and_are_ended_by_cancel(
    bench: Any, waiting: Callable[..., Any]
) -> None:
    code = "import subprocess; one = subprocess.Popen(['sleep', '600']); print('up', one.pid, flush=True); one.wait()"
    spec = bench.spec(code)
    state = bench.launch(spec)
    stray = int(bench.wait_for_output(state.job, "\n").split()[1])
    os.kill(supervisor_pid(state), signal.SIGKILL)
    waiting(lambda: gone(payload_pid(state)), "the payload's end")
    assert bench.inspect(state.job).survivors == (stray,)
    with pytest.raises(RefusedError, match="cancel it first"):
        bench.launch(spec)
    ended = bench.launcher.cancel(state.job)
    assert ended.state == "lost" and f"ended by cancel: {stray}" in ended.evidence
    assert gone(stray)
    assert bench.launch(spec).attempt == 2


def test_cancel_ends_the_job_and_says_so(bench: Any) -> None:
    state = bench.launch(bench.spec(SLEEPER))
    ended = bench.launcher.cancel(state.job, by="ann on laptop")
    assert (ended.state, ended.reason) == ("cancelled", "cancelled by ann on laptop")
    assert re.fullmatch(r"asked at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", ended.evidence[0])
    assert gone(payload_pid(state))
    assert bench.launcher.cancel(state.job).state == "cancelled"


def test_a_supervisor_that_was_stopped_is_no_obstacle_to_cancel(bench: Any) -> None:
    state = bench.launch(bench.spec(SLEEPER, limits={"grace_seconds": 0.2}))
    os.kill(supervisor_pid(state), signal.SIGSTOP)
    ended = bench.launcher.cancel(state.job)
    assert ended.state == "cancelled"
    assert gone(payload_pid(state)) and gone(supervisor_pid(state))


def test_a_supervisor_told_to_end_by_somebody_else_is_not_a_cancel(bench: Any) -> None:
    state = bench.launch(bench.spec(SLEEPER))
    os.kill(supervisor_pid(state), signal.SIGTERM)
    ended = bench.wait(state.job)
    assert ended.state == "killed" and "not by hostkit" in (ended.reason or "")
    assert ended.evidence == (f"sent by pid {os.getpid()}, uid {os.getuid()}",)


def test_a_job_that_is_over_is_left_alone_by_cancel(bench: Any) -> None:
    state = bench.run(bench.spec("raise SystemExit(4)"))
    ended = bench.launcher.cancel(state.job)
    assert (ended.state, ended.exit) == ("failed", 4)


def test_what_a_finished_payload_left_behind_is_ended(bench: Any) -> None:
    code = "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)"
    state = bench.run(bench.spec(code))
    assert state.state == "done" and state.evidence == ("1 processes that it left behind were ended",)
    assert gone(int(bench.out(state.job)))


def test_the_same_job_is_attached_to_while_it_runs_and_after_it_is_done(bench: Any) -> None:
    running = bench.spec(SLEEPER)
    first, second = bench.launch(running), bench.launch(running)
    assert (first.attached, second.attached) == (False, True)
    assert first.identity == second.identity
    done = bench.spec("print(1)")
    assert bench.run(done).state == "done"
    assert bench.launch(done).attached
    assert bench.run(done, again=True).job == f"{done.id}-2"


def test_a_failed_job_gets_a_new_attempt_and_the_first_stays(bench: Any) -> None:
    spec = bench.spec("raise SystemExit(1)")
    assert [bench.run(spec).job for _ in range(3)] == [spec.id, f"{spec.id}-2", f"{spec.id}-3"]
    assert bench.inspect(spec.id).attempt == 3
    assert bench.inspect(f"{spec.id}-1").attempt == 1
    assert [job.job for job in bench.launcher.list_jobs()] == [
        spec.id,
        f"{spec.id}-2",
        f"{spec.id}-3",
    ]


@pytest.mark.report("g9")
def test_of_launches_at_once_exactly_one_starts_a_payload_and_all_name_it(bench: Any) -> None:
    spec = bench.spec(
        "import os, time; open('started', 'a').write('x'); time.sleep(600)", cwd=str(bench.state.parent)
    )
    states: list[jobs.JobState] = []
    threads = [threading.Thread(target=lambda: states.append(bench.launch(spec))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(state.attached for state in states) == [False] + [True] * 5
    assert len({payload_pid(state) for state in states}) == 1
    assert len(bench.launcher.list_jobs()) == 1


def test_wait_hands_on_every_byte_once_and_in_order(bench: Any) -> None:
    seen = bytearray()
    spec = bench.spec(
        "import sys, time\nfor i in range(300): print('line', i, flush=True); time.sleep(0.002)\nprint('x' * 3_000_000)"
    )
    state = bench.launch(spec)
    ended = bench.launcher.follow(
        state.job,
        progress=lambda _, data: seen.extend(data),
        timeout=120,
    )
    assert ended.state == "done"
    expected = "".join(f"line {i}\n" for i in range(300)) + "x" * 3_000_000 + "\n"
    assert bytes(seen) == expected.encode()


def test_wait_that_is_bounded_returns_a_running_state(bench: Any) -> None:
    state = bench.launch(bench.spec(SLEEPER))
    assert bench.launcher.follow(state.job, timeout=0.2).state == "running"


@pytest.mark.report("b3")
def test_a_tail_is_bounded_by_bytes_not_by_lines(bench: Any) -> None:
    state = bench.run(bench.spec("print('x' * 300_000, end='')"))
    data, end = bench.launcher.tail(state.job, -1000, limit=500)
    assert (data, end) == (b"x" * 500, 300_000 - 500)
    assert bench.launcher.tail(state.job, 10**9) == (b"", 300_000)


HOSTILE = [
    "a b",
    "$(touch pwned)",
    "`x`",
    "'\"",
    "--help",
    "-",
    "a\nb",
    "ü\u202e",
    "\x1b[31m",
    "*",
    "~",
    "",
    "\\",
    ";",
]


def test_hostile_words_reach_the_payload_as_they_are(bench: Any) -> None:
    code = "import sys, json, os; print(json.dumps([sys.argv[1:], os.environ['ODD']]))"
    spec = bench.spec(code, *HOSTILE, name="x; rm -rf /\n", env={"ODD": "a\nb=$HOME"})
    state = bench.run(spec)
    assert json.loads(bench.out(state.job)) == [HOSTILE, "a\nb=$HOME"]


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "", "0" * 15, "0" * 16 + "/..", "0" * 16 + "-0", "-h", "a\nb", "*"]
)
def test_a_job_name_that_is_none_is_refused_before_it_is_a_path(bench: Any, name: str) -> None:
    with pytest.raises(UsageError):
        bench.inspect(name)


def test_a_job_that_is_not_there_is_a_usage_error(bench: Any) -> None:
    with pytest.raises(UsageError, match="no job"):
        bench.inspect("0123456789abcdef")


@pytest.mark.parametrize(
    "name", ["../spec.json", "/etc/passwd", "a/../../status.json", "link", "missing", "."]
)
def test_only_results_can_be_fetched(bench: Any, name: str) -> None:
    state = bench.run(
        bench.spec("import os; os.symlink('/etc/passwd', os.environ['HOSTKIT_RESULTS'] + '/link')")
    )
    with pytest.raises((UsageError, DataError)):
        bench.launcher.fetch(state.job, name)


def test_a_large_result_arrives_whole(bench: Any) -> None:
    code = "import os; open(os.environ['HOSTKIT_RESULTS'] + '/big', 'wb').write(bytes(range(256)) * 40_000)"
    state = bench.run(bench.spec(code))
    assert bench.launcher.fetch(state.job, "big") == bytes(range(256)) * 40_000
    with pytest.raises(DataError, match="more than"):
        bench.launcher.fetch(state.job, "big", limit=1000)


def test_the_payload_sees_few_variables_and_no_gpu(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/leak")
    monkeypatch.setenv("HOME", "/leak")
    state = bench.run(
        bench.spec("import os, json; print(json.dumps(dict(os.environ)))", env={"A": "1"}, limits={"cpus": 1})
    )
    env = json.loads(bench.out(state.job))
    assert env["CUDA_VISIBLE_DEVICES"] == "" and env["OMP_NUM_THREADS"] == "1" and env["A"] == "1"
    assert "SSH_AUTH_SOCK" not in env and env["HOME"] != "/leak"
    assert state.applied("gpus-hidden")


def test_files_are_installed_whole_once_and_kept_when_equal(bench: Any, tmp_path: Path) -> None:
    files = {"a.py": b"print(1)\n", "sub/b ü.py": bytes(range(256)) * 1000, "empty": b""}
    dest = str(tmp_path / "dest")
    first = jobs.install_files(bench.transport, bench.host, files, dest)
    assert set(first.written) == set(files)
    assert {name: (tmp_path / "dest" / name).read_bytes() for name in files} == files
    before = (tmp_path / "dest" / "a.py").stat().st_ino
    second = jobs.install_files(bench.transport, bench.host, files | {"empty": b"x"}, dest)
    assert (second.written, set(second.kept)) == (("empty",), {"a.py", "sub/b ü.py"})
    assert (tmp_path / "dest" / "a.py").stat().st_ino == before
    assert sorted(path.name for path in (tmp_path / "dest").iterdir()) == ["a.py", "empty", "sub"]


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "", ".", "a//b"])
def test_a_file_is_only_installed_below_its_folder(bench: Any, tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        jobs.install_files(bench.transport, bench.host, {name: b""}, str(tmp_path / "dest"))


def test_a_fifo_where_a_file_should_be_is_named_and_hangs_nobody(bench: Any) -> None:
    state = bench.run(bench.spec("import os; os.mkfifo(os.environ['HOSTKIT_RESULTS'] + '/result.json')"))
    with pytest.raises(DataError, match="not a regular file"):
        bench.launcher.fetch(state.job, "result.json")
    for name in ("out", "status.json"):
        (Path(state.path) / name).unlink()
        os.mkfifo(Path(state.path) / name)
    with pytest.raises(DataError, match="not a regular file"):
        bench.out(state.job)
    assert bench.inspect(state.job).state == "unknown"


def test_a_full_disk_leaves_no_drafts_behind(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from jobs import folder\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "for attempt in (lambda: folder.claim(sys.argv[1] + '/jobs/x', {'a': 1}),\n"
        "                lambda: folder.write(sys.argv[1], 'status.json', {'a': 1})):\n"
        "    try:\n        attempt()\n    except OSError as error:\n        print(error.errno)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(jobs.__file__).parents[1] / "remote")},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.split() == [str(errno.EFBIG)] * 2
    assert [path.name for path in tmp_path.rglob("*")] == ["jobs"]
