"""A real drafter in training inside ct200: tiny, on the CPU, and saving when it is told to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from filelock import FileLock

from tests.fleet.fleet import Fleet
from tests.fleet.hosts import CHECKOUT
from tests.fleet.processes import until
from tests.fleet.saves import ROOT, inside
from tests.fleet.training import LOG, Training

PAYLOAD = CHECKOUT / "remote_payloads"
TRAINER = "/workspace/trainer/train_drafter.py"
TARGET = "/models/tiny"
TRIGGER = "/workspace/SAVE_NOW"
_ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def tiny_target(shared: Path, *, steps: int = 40) -> Path:
    """Make the tiny target model, once for all workers of a test run, below a folder that they share."""
    target = shared / "tiny-target"
    with FileLock(shared / "tiny-target.lock"):
        if not target.exists():
            program = [sys.executable, str(PAYLOAD / "make_tiny_target.py"), "--threads", "1"]
            draft = shared / "tiny-target.draft"
            made = subprocess.run(
                [*program, "--steps", str(steps), "--out", str(draft)],
                env=_ONE_THREAD,
                capture_output=True,
                text=True,
                check=False,
            )
            assert made.returncode == 0, made.stderr
            draft.rename(target)
    return target


class Run:
    """A live DFlash training in ct200, and the model it drafts for on both hosts."""

    def __init__(self, fleet: Fleet, target: Path, *, pace: float = 0.3) -> None:
        self.fleet = fleet
        for host in ("ct200", "ct129"):
            shutil.copytree(target, inside(fleet, host, TARGET))
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PAYLOAD, inside(fleet, "ct200", TRAINER).parent, ignore=ignore)
        command = [
            sys.executable,
            TRAINER,
            "--target",
            TARGET,
            "--out",
            ROOT,
            "--log",
            LOG,
            "--log-every",
            "1",
        ]
        command += [
            "--recipe",
            "tiny",
            "--pool",
            "24",
            "--response-tokens",
            "48",
            "--threads",
            "1",
            "--pace",
            str(pace),
        ]
        command += ["--steps", "100000", "--save-every", "100000", "--save-trigger", TRIGGER]
        pid = fleet.start_process(
            "ct200", ["env", "OMP_NUM_THREADS=1", *command], log="/workspace/out", cwd="/workspace"
        )
        self.process = Training(fleet, "ct200", pid)
        try:
            until(lambda: self.process.step() > 0, "the training's first step", seconds=400, pause=0.2)
        except TimeoutError as error:
            raise AssertionError(inside(fleet, "ct200", "/workspace/out").read_text()) from error

    def save(self) -> int:
        """Have it save now; returns the step, once the checkpoint has its final name."""
        before = self.saved()
        inside(self.fleet, "ct200", TRIGGER).touch()
        until(lambda: self.saved() > before, "a new checkpoint", seconds=240, pause=0.1)
        (step,) = self.saved() - before
        return step

    def saved(self) -> set[int]:
        """Return the steps of which there is a checkpoint."""
        return {
            int(file.parent.name.removeprefix("step_"))
            for file in inside(self.fleet, "ct200", ROOT).glob("step_*/checkpoint.pt")
        }

    def inventory(self) -> Path:
        """Return an inventory that describes this run."""

        def describe(data: dict[str, Any]) -> None:
            run = data["runs"]["drafter"]
            run.update(process={"script": "train_drafter.py"}, block_size=8)
            run["checkpoints"].pop("every")  # it saves when it is told to

        return self.fleet.inventory_with(describe)
