"""A run that stopped and went on equals, bit for bit, one that never did: weights, moments and checkpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import train_drafter
from dflash.drafter import checkpoint
from dflash.training.stop_requests import Stopping
from tests.payloads.conftest import PAYLOADS

TINY = ["--recipe", "tiny", "--threads", "1", "--batch", "2", "--anchors", "4"]
Train = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def train(target_folder: Path, tmp_path: Path, capsys: Any, monkeypatch: Any) -> Train:
    """Runs to the end, or as if SIGTERM came during step `until`."""
    monkeypatch.setattr(Stopping, "listen", lambda self: None)

    def run(out: str, *more: object, until: int | None = None) -> list[dict[str, Any]]:
        asked = [0]

        def ask(self: Stopping) -> bool:
            asked[0] += 1
            return asked[0] == until

        with monkeypatch.context() as patch:
            patch.setattr(Stopping, "asked", property(ask))
            argv = ["--target", target_folder, "--out", tmp_path / out, *TINY, *more]
            assert train_drafter.main(list(map(str, argv))) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def everything(folder: Path) -> dict[str, Any]:
    """All that a run leaves at a step, flat: numbers by their path."""
    flat: dict[str, Any] = {}

    def visit(at: str, value: Any) -> None:
        if isinstance(value, dict):
            for name, item in value.items():
                visit(f"{at}.{name}", item)
        elif isinstance(value, (list, tuple)):
            for number, item in enumerate(value):
                visit(f"{at}.{number}", item)
        else:
            flat[at] = value

    visit("state", checkpoint.read(folder / "trainer_state.pt"))
    visit("checkpoint", checkpoint.read(folder / "checkpoint.pt"))
    apart = ("training.out", ".harness.", "git_commit")
    return {name: value for name, value in flat.items() if not any(part in name for part in apart)}


def differing(one: dict[str, Any], two: dict[str, Any]) -> list[str]:
    assert one.keys() == two.keys()
    return [
        name
        for name in one
        if not (
            torch.equal(one[name], two[name])
            if isinstance(one[name], torch.Tensor)
            else one[name] == two[name]
        )
    ]


@pytest.fixture
def features(target_folder: Path, samples_file: Path, tmp_path: Path) -> Path:
    import store_features

    argv = [
        "--target",
        target_folder,
        "--data",
        samples_file,
        "--out",
        tmp_path / "features",
        "--target-layer-ids",
    ]
    assert store_features.main([*map(str, argv), "1", "2", "3"]) == 0
    return tmp_path / "features"


@pytest.mark.parametrize("how", ["inline", "accumulated", "queue", "stored", "autocast", "sliding"])
def test_two_halves_equal_the_whole(
    how: str, train: Train, samples_file: Path, tmp_path: Path, request: Any
) -> None:
    data = ["--data", samples_file]
    flags: list[object] = {
        "inline": data,
        "accumulated": [*data, "--accumulate", 3],
        "queue": [*data, "--target-devices", "cpu,cpu", "--queue-bytes", 50_000, "--accumulate", 2],
        "stored": ["--features", request.getfixturevalue("features")] if how == "stored" else [],
        "autocast": [*data, "--autocast"],
        "sliding": [*data, "--sliding-layers", 1, "--sliding-window", 9],
    }[how]
    flags += ["--steps", 8, "--save-every", 8]
    train("whole", *flags)
    assert train("halves", *flags, until=4)[-1]["event"] == "stopped"
    lines = train("halves", *flags)
    assert [line["step"] for line in lines if line.get("event") == "resumed"] == [4]
    assert (
        differing(everything(tmp_path / "whole" / "step_8"), everything(tmp_path / "halves" / "step_8")) == []
    )


@pytest.mark.slow
def test_fifty_and_fifty_steps_are_a_hundred(train: Train, samples_file: Path, tmp_path: Path) -> None:
    flags = [
        "--data",
        samples_file,
        "--steps",
        100,
        "--save-every",
        1000,
        "--accumulate",
        2,
        "--log-every",
        50,
    ]
    whole = train("whole", *flags)
    train("halves", *flags, until=50)
    halves = train("halves", *flags)
    assert (
        differing(everything(tmp_path / "whole" / "step_100"), everything(tmp_path / "halves" / "step_100"))
        == []
    )
    last = [
        [line for line in lines if line.get("step") == 100 and "loss" in line] for lines in (whole, halves)
    ]
    assert last[0][0]["loss"] == last[1][0]["loss"]


def ranks(script: list[str], target: Path, out: Path, *more: object) -> tuple[int, list[dict[str, Any]], str]:
    argv = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *script,
        "--target", target, "--out", out, *TINY, *more,
    ]  # fmt: skip
    env = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(PAYLOADS)}
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, timeout=170, env=env)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return done.returncode, lines, done.stderr


@pytest.mark.slow
def test_two_halves_of_two_ranks_equal_their_whole(
    target_folder: Path, samples_file: Path, tmp_path: Path
) -> None:
    flags = ["--data", samples_file, "--steps", 6, "--save-every", 3, "--target-devices", "cpu,cpu"]
    script = [str(PAYLOADS / "train_drafter.py")]
    for out in ("whole", "halves"):
        status, _, err = ranks(script, target_folder, tmp_path / out, *flags)
        assert status == 0, err[-2000:]
    for name in ("checkpoint.pt", "trainer_state.pt"):
        (tmp_path / "halves" / "step_6" / name).unlink()
    status, lines, err = ranks(script, target_folder, tmp_path / "halves", *flags)
    assert status == 0, err[-2000:]
    assert [line["step"] for line in lines if line.get("event") == "resumed"] == [3]
    assert (
        differing(everything(tmp_path / "whole" / "step_6"), everything(tmp_path / "halves" / "step_6")) == []
    )


DIES = """
import os, sys
import train_drafter
from dflash.features import workers
real, made = workers.batch_features, []
def dies(*args):
    made.append(1)
    if os.environ["RANK"] == "1" and len(made) == 3:
        raise RuntimeError("device lost")
    return real(*args)
workers.batch_features = dies
raise SystemExit(train_drafter.main())
"""


@pytest.mark.slow
def test_a_death_on_one_rank_ends_all_of_them_and_is_named(
    target_folder: Path, samples_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "dies.py").write_text(DIES)
    flags = ["--data", samples_file, "--steps", 50, "--save-every", 50, "--target-devices", "cpu,cpu"]
    status, lines, _ = ranks([str(tmp_path / "dies.py")], target_folder, tmp_path / "run", *flags)
    assert status == 1
    said = {line.get("rank", 0): line for line in lines if line.get("event") == "producer_died"}
    assert said[0]["worker"] == "of another rank"
    assert "device lost" in said[1]["what"]
    step = said[0]["step"]
    assert checkpoint.read(tmp_path / "run" / f"step_{step}" / "checkpoint.pt")["step"] == step
