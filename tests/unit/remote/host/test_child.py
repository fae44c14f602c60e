"""A child process ends when it is told to, when we end, and also where nothing can be asked of the C library."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from host import child as host_child
from host import process


def ended(script: str, *, now: bool) -> tuple[int, str]:
    """Run a shell until it says that it is up, and to its end; return its status, and the end of what it said."""
    child = host_child.ChildProcess(["sh", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    with child.process:
        assert child.process.stdout is not None
        assert child.process.stdout.readline() == b"up\n"
        return child.end(now=now), child.said()


def test_a_child_that_heeds_no_signal_is_killed_after_some_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_child, "PATIENCE", 0.05)
    assert ended("trap '' TERM; echo up; exec sleep 600", now=True)[0] == -signal.SIGKILL


def test_the_end_of_what_it_said_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_child, "TAIL", 6)
    assert ended("echo up; echo much and more >&2; exit 3", now=False) == (3, " more\n")


def test_without_a_c_library_to_ask_a_child_runs_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "libc", lambda: None)
    assert ended("echo up", now=False) == (0, "")


def test_it_ends_when_its_parent_is_killed() -> None:
    folder = str(Path(host_child.__file__).parents[1])
    code = (
        f"import sys; sys.path.insert(0, {folder!r}); import os, signal, subprocess; from host import child\n"
        "made = child.ChildProcess(['sleep', '600'], stdin=subprocess.DEVNULL)\n"
        "print(made.process.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL
    known = process.identity(int(done.stdout))
    assert known is None or process.gone([known], 60)
