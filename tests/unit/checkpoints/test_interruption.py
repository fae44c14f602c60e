"""Killed at any point, and two at once: one writer to a staging file, and the same command again completes it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hostkit.checkpoints import Staged
from tests.unit.checkpoints.conftest import Ground, saved
from tests.unit.checkpoints.test_staging import stub

# tells that it began, then waits until the test opens the gate; the real rsync runs as its own process
GATED = 'echo $$ >> {folder}/began; while [ ! -e {folder}/gate ]; do sleep 0.05; done; exec "$RSYNC" "$@"'
COMMAND = """
import sys
from pathlib import Path
from tests.unit.checkpoints.conftest import Ground
Ground(Path(sys.argv[1]), {"box": {"local": True}}).stage(1)
"""


def until(true: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)


def began(ground: Ground) -> list[int]:
    try:
        return [int(line) for line in (ground.folder / "began").read_text().split()]
    except FileNotFoundError:
        return []


def lock(ground: Ground) -> Path:
    return next((ground.staged / ".staging").glob("*.lock"))


def other_command(ground: Ground) -> subprocess.Popen[bytes]:
    root = Path(__file__).parents[3]
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(ground.folder)],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
    )


@pytest.mark.report("g9")
@pytest.mark.parametrize("receiver_too", [False, True], ids=["the laptop's process", "and the far side's"])
def test_after_kill_9_the_next_command_waits_for_the_copy_that_still_runs(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, receiver_too: bool
) -> None:
    path = saved(ground.root / "step_1" / "checkpoint.pt", 1)
    stub(ground, monkeypatch, GATED.format(folder=ground.folder))
    first = other_command(ground)
    until(lambda: bool(began(ground)))
    first.kill()
    first.wait()
    if receiver_too:
        os.kill(json.loads(lock(ground).read_text())["pid"], signal.SIGKILL)
    found: list[Staged] = []
    second = threading.Thread(target=lambda: found.append(ground.stage(1)), daemon=True)
    second.start()
    until(lambda: any(phase == "wait" for phase, _, _ in ground.told))
    assert len(began(ground)) == 1  # never a second writer beside the first
    (ground.folder / "gate").touch()
    second.join(60)
    assert Path(found[0].path).read_bytes() == path.read_bytes()


def test_two_at_once_end_with_one_copy_that_both_use(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(ground.root / "step_1" / "checkpoint.pt", 1)
    stub(ground, monkeypatch, GATED.format(folder=ground.folder))
    first = other_command(ground)
    until(lambda: bool(began(ground)))
    found: list[Staged] = []
    second = threading.Thread(target=lambda: found.append(ground.stage(1)), daemon=True)
    second.start()
    until(lambda: any(phase == "wait" for phase, _, _ in ground.told))
    (ground.folder / "gate").touch()
    second.join(60)
    assert first.wait(60) == 0
    assert len(found) == len(ground.finals()) == 1


def test_a_copy_that_was_killed_goes_on_at_the_exact_byte(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(ground.root / "step_1" / "checkpoint.pt", 1, numbers=2_000_000)
    with monkeypatch.context() as patch:
        slow = f'echo $$ >> {ground.folder}/began; exec "$RSYNC" --bwlimit=1m "$@"'
        stub(ground, patch, slow)
        first = other_command(ground)
        partial = ground.staged / ".staging"
        until(lambda: any(one.stat().st_size > 1_000_000 for one in partial.glob("*/checkpoint.pt")))
        first.kill()
        first.wait()
        receiver = json.loads(lock(ground).read_text())["pid"]
        os.kill(receiver, signal.SIGKILL)
        for pid in began(ground):
            os.kill(pid, signal.SIGKILL)
    (there,) = partial.glob("*/checkpoint.pt")
    size = there.stat().st_size
    staged = ground.stage(1)
    assert 0 < size <= staged.resumed_at < path.stat().st_size
    assert Path(staged.path).read_bytes() == path.read_bytes()
