"""A training in one of the fleet's containers, and what a test does with it."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from pathlib import Path

from tests.fleet.fleet import Fleet
from tests.fleet.hosts import HERE
from tests.fleet.inventory_file import TRAINER
from tests.fleet.processes import until

SCRIPT = f"/workspace/{TRAINER}"
LOG = "/workspace/train.log"


@dataclass(frozen=True)
class Training:
    """One process that trains. `pid` is its number inside its container."""

    fleet: Fleet
    host: str
    pid: int

    @classmethod
    def begin(
        cls,
        fleet: Fleet,
        *extra: str,
        host: str = "ct200",
        sample: Path | None = None,
        argv: tuple[str, ...] = (),
    ) -> Training:
        """Start the stand-in trainer and wait for its first step. `argv` replaces the usual command."""
        workspace = fleet.root(host) / "workspace"
        (workspace / TRAINER).write_bytes((HERE / "trainer.py").read_bytes())
        if sample:
            (workspace / "sample.pt").write_bytes(sample.read_bytes())
            extra = ("--sample", "/workspace/sample.pt", *extra)
        command = [*(argv or ("/usr/bin/python3", SCRIPT)), *extra]
        training = cls(fleet, host, fleet.start_process(host, command, cwd="/workspace"))
        # the log may be that of another training, so its step alone does not say that this one runs
        until(
            lambda: fleet.processes(host).get(training.pid) == command and training.step() > 0,
            "the training's first step",
        )
        return training

    def step(self) -> int:
        """Return the newest step in the log, 0 without one."""
        log = self.fleet.root(self.host) / LOG.removeprefix("/")
        lines = log.read_text().splitlines() if log.exists() else []
        whole = [line for line in lines if line.startswith('{"step"') and line.endswith("}")]
        return int(json.loads(whole[-1])["step"]) if whole else 0

    def reach(self, step: int, *, seconds: float = 120) -> None:
        until(lambda: self.step() >= step, f"step {step}", seconds=seconds, pause=0.05)

    def go_on(self, steps: int = 3) -> None:
        """Wait until it has made some more steps: it lives."""
        self.reach(self.step() + steps)

    def signal(self, number: signal.Signals) -> None:
        self.fleet.sh(self.host, ["kill", f"-{number.name.removeprefix('SIG')}", str(self.pid)])

    def kill(self) -> None:
        """Kill it, and wait until its number is free: it has ended, and been reaped."""
        self.signal(signal.SIGKILL)
        place = self.fleet.root(self.host) / "proc" / str(self.pid)
        until(lambda: not place.exists(), "the training's end")

    def stop(self) -> None:
        """Stop it (SIGSTOP), and wait until it stands: a moment after the signal it may still do something."""
        self.signal(signal.SIGSTOP)
        until(lambda: self.state() == "T", "a training that stands still")

    def state(self) -> str:
        """Return the letter of its state: R, S, D, T, Z."""
        stat = self.fleet.out(self.host, "cat", f"/proc/{self.pid}/stat")
        return stat[stat.rindex(")") + 2]

    def start_ticks(self) -> int:
        """Return when it was started, in ticks since boot: with its pid, its identity."""
        stat = self.fleet.out(self.host, "cat", f"/proc/{self.pid}/stat")
        return int(stat[stat.rindex(")") + 2 :].split()[19])
