"""`hostkit eval-latest` on a kept practice fleet with a real training (slow: it is trained on the spot)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hostkit.identity import Identity
from hostkit.practice import lifecycle, processes, training
from hostkit.practice.root import Root
from hostkit.practice.scenario import Laptop
from tests.practice.conftest import saved, stop

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@dataclass
class Kept:
    """A fleet that `practice --keep` left up."""

    root: Root
    laptop: Laptop

    def ask(self, *words: str) -> dict[str, Any]:
        return self.laptop.ask(*words)

    @property
    def who(self) -> Identity:
        return next(who for what, who in processes.noted(self.root) if what == "the training")


@pytest.fixture(scope="module")
def kept(fleets: Path) -> Iterator[Kept]:
    program = [sys.executable, "-c", "from hostkit.cli import main; main()", "practice"]
    environment = os.environ | {"TMPDIR": str(fleets)}
    flags = ["--keep", "--no-tour", "--json"]
    done = subprocess.run([*program, *flags], capture_output=True, env=environment, timeout=800)
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    root = Root(Path(json.loads(done.stdout)["root"]))
    yield Kept(root, Laptop(root))
    everyone = processes.marked(root)
    assert len(everyone) >= 3
    down = [*program, "--down", "--inventory", str(root.inventory)]
    subprocess.run(down, check=True, env=environment, timeout=120)
    assert [who for who in everyone if processes.alive(who)] == []
    assert not root.path.exists()


@pytest.fixture
def stopped(kept: Kept) -> Iterator[Kept]:
    """The training stands still, so that no newer checkpoint comes."""
    stop(kept.who.pid)
    yield kept
    os.kill(kept.who.pid, signal.SIGCONT)


def test_the_newest_checkpoint_is_evaluated_beside_the_training_which_goes_on(kept: Kept) -> None:
    before = kept.ask("train-status")
    told = kept.ask("eval-latest")
    after = kept.ask("train-status")
    assert (told["exit"], told["bad"]) == (0, [])
    assert told["result"]["status"] == "complete"
    assert told["result"]["metrics"]["accept_len"]["mean"] > 0.5
    assert told["result"]["checkpoint"]["step"] >= before["step"]["saved"]
    assert (before["verdict"], after["verdict"]) == ("RUNNING", "RUNNING")
    assert before["processes"][0]["identity"] == after["processes"][0]["identity"] == kept.who.model_dump()
    assert after["step"]["live"] > before["step"]["live"]


def test_a_half_written_newest_checkpoint_is_passed_over_and_said_to_be(stopped: Kept) -> None:
    root = stopped.root
    *_, whole, newest = saved(root)
    path = root.checkpoints / f"step_{newest}" / "checkpoint.pt"
    kept_bytes = path.read_bytes()
    path.write_bytes(kept_bytes[: len(kept_bytes) * 6 // 10])
    try:
        told = stopped.ask("eval-latest", "--quick")
    finally:
        path.write_bytes(kept_bytes)
    assert told["checkpoint"]["step"] == whole
    assert [caveat for caveat in told["caveats"] if f"step {newest} was passed over" in caveat]
    assert told["exit"] == 1, "the training is stopped, which is said, and evaluated all the same"


def test_a_newest_checkpoint_that_only_a_closer_look_finds_torn_is_passed_over_too(stopped: Kept) -> None:
    root = stopped.root
    *_, whole, newest = saved(root)
    path = root.checkpoints / f"step_{newest}" / "checkpoint.pt"
    kept_bytes = path.read_bytes()
    path.write_bytes(
        kept_bytes[:64] + bytes(4096) + kept_bytes[4160:]
    )  # its ends are whole, its pickle is not
    try:
        told = stopped.ask("eval-latest", "--dry-run")
    finally:
        path.write_bytes(kept_bytes)
    assert told["checkpoint"]["step"] == whole
    assert [note for note in told["notes"] if f"step {newest} was passed over" in note]


def test_the_same_again_comes_from_the_archive(stopped: Kept) -> None:
    first = stopped.ask("eval-latest", "--quick")
    again = stopped.ask("eval-latest", "--quick")
    assert again["reused"] is True
    assert again["archive"] == first["archive"]


def test_no_evaluation_leaves_a_process_behind(kept: Kept) -> None:
    names = ("ct129", "pve")
    servers = [
        who for what, who in processes.noted(kept.root) if what in {f"the SSH server of {n}" for n in names}
    ]
    expected = {who.pid for who in [*servers, kept.who]}

    def only_ours() -> bool | None:
        return True if {who.pid for who in processes.marked(kept.root)} == expected else None

    assert lifecycle.until(only_ours, 90), processes.marked(kept.root)
    assert training.live_step(kept.root) > 0
