"""Which file is a live process's log, where the declared name no longer means it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from run import log as run_log

WRITER = """
import signal, sys
files = [open(path, "a") for path in sys.argv[1:]]
for file in files: print("step 7 loss 2.0", file=file, flush=True)
print("ready", flush=True)
signal.sigwait([signal.SIGTERM])
"""
Writer = Callable[..., int]


@pytest.fixture
def writer() -> Iterator[Writer]:
    """Start a process that has files open for writing; its standard output is a pipe."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*paths: Path) -> int:
        argv = [sys.executable, "-c", WRITER, *map(str, paths)]
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        started.append(child)
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        return child.pid

    yield start
    for child in started:
        child.kill()
        child.communicate()


def read(path: Path, pid: int, **more: Any) -> dict[str, Any]:
    return run_log.log(str(path), [pid], **more)


@pytest.mark.parametrize("name", ["first try.txt", "first try", "train.log.1"])
def test_a_log_renamed_to_any_name_is_read_by_its_descriptor(
    writer: Writer, tmp_path: Path, name: str
) -> None:
    path, moved = tmp_path / "train.log", tmp_path / name
    pid = writer(path)
    path.rename(moved)
    log = read(path, pid)
    assert (log["renamed"], log["held"], log["tail"]) == (str(moved), True, "step 7 loss 2.0\n")
    assert (log["error"], log["missing"]) == (None, False)
    path.touch()  # made anew, as by logrotate; nobody writes it
    assert read(path, pid)["renamed"] == str(moved)


def test_a_log_renamed_out_of_its_folder_is_known_by_its_inode(writer: Writer, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    path, moved = tmp_path / "train.log", tmp_path / "old" / "first"
    pid = writer(path)
    inode = path.stat().st_ino
    path.rename(moved)
    path.write_text("step 1 loss 9\n")
    assert read(path, pid)["tail"] == "step 1 loss 9\n"
    assert read(path, pid, inode=inode)["renamed"] == str(moved)


def test_a_stale_declared_log_gives_way_to_the_one_beside_it_that_is_written(
    writer: Writer, tmp_path: Path
) -> None:
    path = tmp_path / "train.log"
    path.write_text("step 1 loss 9\n")
    pid = writer(tmp_path / "run7.log")
    began = path.stat().st_mtime
    assert read(path, pid, began=began)["held"] is False
    os.utime(path, (began - 60, began - 60))
    assert read(path, pid, began=began)["renamed"] == str(tmp_path / "run7.log")


def test_what_tee_writes_under_the_declared_name_is_the_log_whatever_else_the_process_has_open(
    writer: Writer, tmp_path: Path
) -> None:
    (tmp_path / "wandb").mkdir()
    path = tmp_path / "train.log"
    pid = writer(tmp_path / "wandb" / "debug.log", tmp_path / "debug.log")
    path.write_text("step 9 loss 1\n")
    log = read(path, pid, began=path.stat().st_mtime - 100)
    assert (log["held"], log["tail"]) == (False, "step 9 loss 1\n")


def test_paths_of_a_process_in_another_namespace_count_where_its_container_is_declared(
    writer: Writer, tmp_path: Path
) -> None:
    pid = writer(tmp_path / "train.log")
    path = tmp_path / "train.log"
    path.unlink()
    path.write_text("step 1 of something else on this host\n")
    assert read(path, pid, strangers=[pid])["held"] is False
    inside = read(path, pid, strangers=[pid], inside=True)
    assert (inside["held"], inside["tail"]) == (True, "step 7 loss 2.0\n")
    assert (inside["renamed"], inside["rotated"]) == (None, False)
