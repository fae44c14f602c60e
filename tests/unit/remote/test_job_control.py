"""The supervisor program as a host runs it: one request on stdin, one answer, and nothing of the caller kept."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import job_control
from host import process

PROGRAM = Path(job_control.__file__)
JOB = "00000000000000aa"
PYTHON = os.environ.get("HOSTKIT_TEST_PYTHON", sys.executable)


def ask(
    state: Path, op: str, *, stdin: bytes = b"", pass_fds: tuple[int, ...] = (), **request: Any
) -> dict[str, Any]:
    line = json.dumps({"op": op, "state": str(state), **request}).encode() + b"\n"
    done = subprocess.run(
        [
            PYTHON,
            "-I",
            "-c",
            f"import sys, runpy; sys.path.insert(0, {str(PROGRAM.parent)!r}); "
            f"runpy.run_path({str(PROGRAM)!r}, run_name='__main__')",
        ],
        input=line + stdin,
        capture_output=True,
        pass_fds=pass_fds,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0 and not done.stderr, done
    reply = json.loads(done.stdout)
    assert isinstance(reply, dict)
    return reply


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "state"
    for job in ask(tmp_path / "state", "list")["jobs"]:
        if job["state"] == "running":
            ask(tmp_path / "state", "cancel", job=job["job"])


def spec(*argv: str, **limits: Any) -> dict[str, Any]:
    return {"argv": list(argv), "limits": limits}


@pytest.mark.report("g7", "e19")
def test_a_lock_and_streams_of_the_caller_are_free_again_while_the_job_runs(
    state: Path, tmp_path: Path
) -> None:
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    begin = time.monotonic()
    reply = ask(
        state, "launch", job=JOB, spec=spec("sleep", "600"), pass_fds=(lock,)
    )  # returns at the end of its streams
    assert time.monotonic() - begin < 100
    os.close(lock)
    other = os.open(tmp_path / "lock", os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)
    assert reply["state"] == "running"
    assert process.whereabouts(reply["identity"]["payload"]) == "alive"


def test_a_launcher_that_is_killed_leaves_a_job_that_goes_on(state: Path) -> None:
    request = {"op": "launch", "state": str(state), "job": JOB, "spec": spec("sleep", "600")}
    code = (
        f"import sys; sys.path.insert(0, {str(PROGRAM.parent)!r})\n"
        "import os, signal, job_control\n"
        "job_control.select.select = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"job_control.serve({request!r})"
    )
    done = subprocess.run([PYTHON, "-c", code], stdin=subprocess.DEVNULL, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL
    again = ask(state, "launch", job=JOB, spec=spec("sleep", "600"))
    assert (again["state"], again["attached"], again["job"]) == ("running", True, JOB)
    assert process.whereabouts(again["identity"]["payload"]) == "alive"


def test_a_poll_returns_as_soon_as_there_is_something_to_say(state: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    ask(state, "launch", job=JOB, spec=spec("sh", "-c", f"read word < '{go}'; echo $word"))
    assert ask(state, "poll", job=JOB, hold=0.2)["job"]["state"] == "running"
    go.write_text("hello\n")
    begin = time.monotonic()
    reply = ask(state, "poll", job=JOB, hold=30)
    assert (reply["data"], reply["offset"]) == ("aGVsbG8K", 6)
    assert time.monotonic() - begin < 29


def test_files_that_arrive_damaged_are_refused_and_leave_nothing(state: Path, tmp_path: Path) -> None:
    entry = {"name": "a.py", "size": 3, "sha256": "0" * 64}
    reply = ask(state, "install", dest=str(tmp_path / "dest"), files=[entry], stdin=b"abc")
    assert reply["refused"]["rule"] == "damaged"
    assert not (tmp_path / "dest").exists()


def test_a_draft_that_a_kill_left_blocks_no_later_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container the same small pid comes again and again."""
    data = b"print(1)"
    (tmp_path / f"a.py.hostkit-{os.getpid()}").write_bytes(b"pri")
    entry = {"name": "a.py", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert job_control.install({"dest": str(tmp_path), "files": [entry]}) == {
        "written": ["a.py"],
        "kept": [],
        "removed": [],
    }
    assert (tmp_path / "a.py").read_bytes() == data


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    reply = ask(tmp_path / "file", "launch", job=JOB, spec=spec("true"))
    assert reply["failed"]["errno"] == "ENOTDIR" and str(tmp_path / "file") in reply["failed"]["what"]


def test_a_supervisor_that_fails_itself_says_so_and_leaves_no_payload(state: Path) -> None:
    request = {"op": "launch", "state": str(state), "job": JOB, "spec": spec("sleep", "600")}
    code = (
        f"import sys; sys.path.insert(0, {str(PROGRAM.parent)!r})\n"
        "import job_control\nfrom jobs import supervise\n"
        "def broken(self, by_watchdog): raise RuntimeError('broken look')\n"
        "supervise.Watch._look = broken\n"
        f"job_control.serve({request!r})"
    )
    subprocess.run(
        [PYTHON, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=True
    )
    ended = ask(state, "poll", job=JOB, hold=30)["job"]
    assert (ended["state"], ended["reason"]) == ("failed", "the supervisor failed: broken look")
    assert process.whereabouts(ended["identity"]["payload"]) == "gone"
