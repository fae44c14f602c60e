"""A training run learns, saves, resumes exactly, and ends for stated reasons."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import checkpoint
import train_drafter
import trainer
from draft_config import DraftConfig
from stopping import Stopping

TINY = ["--recipe", "tiny", "--threads", "1", "--batch", "2", "--anchors", "4"]
Train = Callable[..., tuple[int, list[dict[str, Any]]]]


@pytest.fixture
def train(target_folder: Path, samples_file: Path, tmp_path: Path, capsys: Any, monkeypatch: Any) -> Train:
    """Run the trainer's entry point in this process; its signals stay the test runner's."""
    monkeypatch.setattr(Stopping, "listen", lambda self: None)

    def run(out: str, *more: object) -> tuple[int, list[dict[str, Any]]]:
        argv = ["--target", target_folder, "--data", samples_file, "--out", tmp_path / out, *TINY, *more]
        status = train_drafter.main(list(map(str, argv)))
        return status, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def weights(folder: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = checkpoint.read(folder / checkpoint.STATE_NAME)["weights"]
    return found


def test_a_resumed_run_equals_one_that_never_stopped(train: Train, tmp_path: Path) -> None:
    flags = ["--steps", 8, "--save-every", 4, "--accumulate", 2]
    assert train("whole", *flags)[0] == 0
    assert train("parts", *flags)[0] == 0
    for name in ("checkpoint.pt", "trainer_state.pt"):
        (tmp_path / "parts" / "step_8" / name).unlink()
    status, lines = train("parts", *flags)
    assert status == 0
    assert {"event": "resumed", "step": 4} in [
        {k: v for k, v in line.items() if k != "time"} for line in lines
    ]
    one, two = weights(tmp_path / "whole" / "step_8"), weights(tmp_path / "parts" / "step_8")
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_checkpoint_says_what_it_is_and_carries_no_optimizer(train: Train, tmp_path: Path) -> None:
    train("run", "--steps", 2, "--save-every", 2)
    saved = checkpoint.read(tmp_path / "run" / "step_2" / "checkpoint.pt")
    assert saved["format"] == "hostkit.dflash/1"
    assert saved["step"] == 2
    assert DraftConfig.parse(saved["config"]).block_size == 8
    assert saved["target"]["vocab_sha256"]
    assert saved["thinking"] is False
    assert saved["training"]["lr"] == 1.5e-3
    assert {t.dtype for t in saved["draft_state_dict"].values()} == {torch.bfloat16}
    assert "optimizer" not in saved
    assert "optimizer" in checkpoint.read(tmp_path / "run" / "step_2" / "trainer_state.pt")
    assert not list((tmp_path / "run").rglob("*.tmp"))


def test_each_logging_step_is_a_json_line_in_the_file_too(train: Train, tmp_path: Path) -> None:
    _, lines = train("run", "--steps", 4, "--log-every", 2, "--log", tmp_path / "logs" / "train.log")
    steps = [line for line in lines if "step" in line and "loss" in line]
    assert [line["step"] for line in steps] == [1, 2, 4]
    assert {"loss", "grad_norm", "lr", "tokens_per_s", "time", "accuracy", "per_position"} <= steps[0].keys()
    assert len(steps[0]["per_position"]) == 7
    kept = [json.loads(line) for line in (tmp_path / "logs" / "train.log").read_text().splitlines()]
    assert kept == lines
    assert lines[-1]["event"] == "finished"


def test_a_line_for_people_stands_beside_it_unless_both_go_into_one_file(
    target_folder: Path, samples_file: Path, tmp_path: Path, script: Any
) -> None:
    argv = ["--target", target_folder, "--data", samples_file, *TINY, "--steps", 1, "--out"]
    run = script("train_drafter.py", *argv, tmp_path / "apart")
    _, _, people = run.run()
    assert "step 1 loss" in people
    together = script("train_drafter.py", *argv, tmp_path / "together")
    log = tmp_path / "log"
    with log.open("wb") as out:
        subprocess.run(together.argv, stdout=out, stderr=out, env=together.env, check=True, timeout=120)
    assert '{"step": 1, "loss"' in log.read_text()
    assert "step 1 loss" not in log.read_text()


def test_a_loss_that_is_not_finite_ends_the_run_apart_from_the_good_checkpoints(
    train: Train, tmp_path: Path, monkeypatch: Any
) -> None:
    real = trainer.Trainer._forward
    calls = []

    def poisoned(self: Any, *batch: Any) -> Any:
        calls.append(1)
        total, hits = real(self, *batch)
        return (total * float("nan") if len(calls) == 4 else total), hits

    monkeypatch.setattr(trainer.Trainer, "_forward", poisoned)
    status, lines = train("run", "--steps", 9, "--save-every", 2)
    assert status == 1
    assert lines[-1]["event"] == "diverged"
    assert lines[-1]["step"] == 4
    assert lines[-2]["loss"] == "nan"
    assert sorted(p.name for p in (tmp_path / "run").iterdir() if p.is_dir()) == ["diverged", "step_2"]
    state = checkpoint.read(tmp_path / "run" / "diverged" / "at_4" / "trainer_state.pt")
    assert all(torch.isfinite(t).all() for t in state["weights"].values())


def test_a_trigger_file_saves_once_and_is_taken_away(train: Train, tmp_path: Path) -> None:
    trigger = tmp_path / "SAVE_NOW"
    trigger.touch()
    _, lines = train("run", "--steps", 3, "--save-every", 100, "--save-trigger", trigger)
    assert [line["step"] for line in lines if line.get("event") == "saved"] == [1, 3]
    assert not trigger.exists()


def test_the_newest_and_every_mth_checkpoint_are_kept(train: Train, tmp_path: Path) -> None:
    train("run", "--steps", 5, "--save-every", 1, "--keep", 2, "--keep-every", 2)
    kept = sorted(int(p.name.removeprefix("step_")) for p in (tmp_path / "run").glob("step_*"))
    assert kept == [2, 4, 5]
    assert not list((tmp_path / "run").glob(".*"))


def test_another_shape_in_the_same_folder_is_refused(train: Train) -> None:
    train("run", "--steps", 1, "--save-every", 1)
    status, lines = train("run", "--steps", 2, "--layers", 1)
    assert status == 1
    assert "another drafter config" in lines[-1]["what"]


def test_no_data_is_said(target_folder: Path, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(Stopping, "listen", lambda self: None)
    argv = ["--target", target_folder, "--out", tmp_path, *TINY, "--steps", 1, "--pool", 0]
    assert train_drafter.main(list(map(str, argv))) == 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["what"] == "no training data"


def test_sigterm_saves_between_steps_and_ends_well(
    target_folder: Path, samples_file: Path, tmp_path: Path, script: Any
) -> None:
    started = script(
        "train_drafter.py", "--target", target_folder, "--data", samples_file, "--out", tmp_path / "run", *TINY,
        "--steps", 100000, "--save-every", 50000, "--log-every", 1, "--pace", 30,
    ).start()  # fmt: skip
    lines = []
    with started as run:
        for line in run.stdout:
            lines.append(json.loads(line))
            if lines[-1].get("step") == 1 and "loss" in lines[-1]:
                asked = time.monotonic()
                run.send_signal(signal.SIGTERM)
        assert run.wait(timeout=60) == 0
    assert time.monotonic() - asked < 25
    assert lines[-1]["event"] == "stopped"
    assert lines[-1]["reason"] == "SIGTERM"
    step = lines[-1]["step"]
    assert checkpoint.read(tmp_path / "run" / f"step_{step}" / "checkpoint.pt")["step"] == step
