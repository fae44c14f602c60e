"""However an entry point ends, it says so in one event and a stated exit status, and leaves no half file."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from dflash import events, files
from dflash.drafter import checkpoint
from dflash.errors import Refused
from tests.payloads.conftest import PAYLOADS


def ended(fault: BaseException, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any], str]:
    def work() -> int:
        raise fault

    status = events.guarded(work)
    said = capsys.readouterr()
    (event,) = [json.loads(line) for line in said.out.splitlines()]
    assert event.pop("event") == "error"
    return status, event, said.err


@pytest.mark.parametrize(
    ("fault", "status", "what", "hint"),
    [
        (Refused("no", "try"), 1, "no", "try"),
        (ModuleNotFoundError("x", name="torch"), 1, "Python package torch is missing", "install it"),
        (ImportError("libgomp.so.1: cannot open"), 1, "libgomp.so.1", "whole"),
        (MemoryError(), 1, "out of memory", "preflight"),
        (KeyboardInterrupt(), 130, "interrupted", "again"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/d/x.pt"),
            1,
            "/d/x.pt: No space left",
            "free space",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "/d/x"),
            1,
            "/d/x: Permission denied",
            "permissions",
        ),
        (OSError(errno.EROFS, "Read-only file system", "/d/x"), 1, "/d/x: Read-only", "read-only"),
    ],
)
def test_each_way_to_end_is_one_event_and_a_status(
    fault: BaseException, status: int, what: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    got, event, err = ended(fault, capsys)
    assert got == status
    assert what in event["what"]
    assert hint in event["hint"]
    assert err == ""


def test_a_fault_of_the_program_is_an_event_too_and_shows_where(capsys: pytest.CaptureFixture[str]) -> None:
    status, event, err = ended(ZeroDivisionError("oh"), capsys)
    assert status == 70
    assert event["what"] == "ZeroDivisionError: oh"
    assert "Traceback" in err


SPEAKS = """
import sys; sys.path.insert(0, sys.argv[1])
from dflash import events
def work():
    for done in range(20000):
        events.emit("progress", done=done, text="caf\\u00e9 \\u2028")
    open(sys.argv[2], "w").write("whole")
    return 0
raise SystemExit(events.guarded(work))
"""


def test_work_goes_on_when_nobody_reads_its_output_any_more(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", SPEAKS, str(PAYLOADS), str(tmp_path / "out")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout.readline()
        run.stdout.close()
        err = run.stderr.read()
    assert (run.returncode, err) == (0, "")
    assert (tmp_path / "out").read_text() == "whole"


@pytest.mark.parametrize("closed", [True, False])
def test_output_that_is_closed_or_knows_only_ascii_is_no_fault(tmp_path: Path, closed: bool) -> None:
    argv = [sys.executable, "-c", SPEAKS, str(PAYLOADS), str(tmp_path / "out")]
    if closed:
        argv = ["sh", "-c", 'exec "$@" >&-', "sh", *argv]
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(argv, capture_output=True, text=True, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    if not closed:
        assert '"text": "caf\\xe9 \\u2028"' in done.stdout


def test_output_to_a_full_disk_is_no_fault(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", SPEAKS, str(PAYLOADS), str(tmp_path / "out")]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out").read_text() == "whole"


def fill(limit: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


SAVES = """
import sys, pathlib; sys.path.insert(0, sys.argv[1])
import torch
from dflash import events
from dflash.drafter import checkpoint
file = pathlib.Path(sys.argv[2])
def work():
    checkpoint.write(file, {"step": 2, "weights": torch.zeros(100_000)})
    return 0
raise SystemExit(events.guarded(work))
"""


def test_a_save_that_the_disk_refuses_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk: the same call fails, in the midst of the file."""
    file = tmp_path / "checkpoint.pt"
    checkpoint.write(file, {"step": 1, "weights": torch.ones(4)})
    done = subprocess.run(
        [sys.executable, "-c", SAVES, str(PAYLOADS), str(file)],
        capture_output=True,
        text=True,
        preexec_fn=lambda: fill(100_000),
    )
    assert done.returncode == 1
    assert done.stderr == ""
    assert json.loads(done.stdout)["what"] == f"{file}: File too large"
    assert checkpoint.read(file)["step"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_file_cannot_be_written_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "place").write_text("")
    with pytest.raises(OSError, match="place") as refused:
        files.write_durably(tmp_path / "place" / "x", b"")
    assert refused.value.filename == str(tmp_path / "place" / "x")


def test_two_writers_of_one_file_do_not_meet(tmp_path: Path) -> None:
    """Same process id in two containers, same file: each has its own temporary one."""
    file = tmp_path / "x"

    def outer(out: Any) -> None:
        out.write(b"outer")
        files.write_durably(file, b"inner")
        assert file.read_bytes() == b"inner"

    files.write_durably(file, outer)
    assert file.read_bytes() == b"outer"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
