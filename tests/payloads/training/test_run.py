"""A training run learns, saves, resumes exactly, and ends for stated reasons."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import train_drafter
from dflash.drafter import checkpoint
from dflash.drafter.config import DraftConfig
from dflash.training import trainer
from dflash.training.log import TrainLog
from dflash.training.stop_requests import Stopping

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
    assert {"train_drafter.py", "dflash/training/trainer.py", "dflash/data/seeds.py"} <= saved[
        "harness"
    ].keys()
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
        "--steps", 100000, "--save-every", 50000, "--log-every", 1, "--pace", 150,
    ).start()  # fmt: skip
    lines = []
    with started as run:
        for line in run.stdout:
            lines.append(json.loads(line))
            if lines[-1].get("step") == 1 and "loss" in lines[-1]:
                asked = time.monotonic()
                run.send_signal(signal.SIGTERM)
        assert run.wait(timeout=60) == 0
    assert time.monotonic() - asked < 120
    assert lines[-1]["event"] == "stopped"
    assert lines[-1]["reason"] == "SIGTERM"
    step = lines[-1]["step"]
    assert checkpoint.read(tmp_path / "run" / f"step_{step}" / "checkpoint.pt")["step"] == step


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """Stands for a full disk: the same call fails, in the midst of a large file."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def test_a_full_disk_ends_no_training_and_takes_no_checkpoint(train: Train, tmp_path: Path) -> None:
    train("run", "--steps", 4, "--save-every", 2)
    (tmp_path / "run" / "step_4" / "checkpoint.pt").unlink()
    before = (tmp_path / "run" / "step_2" / "trainer_state.pt").read_bytes()
    with files_limited_to(len(before) // 2):
        status, lines = train("run", "--steps", 6, "--save-every", 2)
    assert status == 1, "the last save failed"
    failed = [line for line in lines if line.get("event") == "save_failed"]
    assert [line["step"] for line in failed] == [4, 6]
    assert "trainer_state.pt: File too large" in failed[0]["what"]
    assert failed[0]["hint"]
    assert lines[-1]["event"] == "finished"
    assert lines[-1]["saved"] is False
    assert (tmp_path / "run" / "step_2" / "trainer_state.pt").read_bytes() == before
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["step_2"], "nothing half written holds space"
    status, lines = train("run", "--steps", 6, "--save-every", 2)
    assert status == 0
    assert lines[-2]["event"] == "saved"


def test_a_checkpoint_that_cannot_be_written_is_no_step_to_resume_from(
    train: Train, tmp_path: Path, monkeypatch: Any
) -> None:
    """The resume state fits, the checkpoint does not."""
    real = checkpoint.write

    def write(file: Path, content: dict[str, Any]) -> None:
        if file.name == "checkpoint.pt":
            raise OSError(28, "No space left on device", str(file))
        real(file, content)

    monkeypatch.setattr(checkpoint, "write", write)
    status, lines = train("run", "--steps", 2, "--save-every", 2)
    assert status == 1
    assert "checkpoint.pt: No space left on device" in lines[-2]["what"]
    assert list((tmp_path / "run").iterdir()) == []


def test_a_log_on_a_full_disk_is_said_once_and_ends_no_training(train: Train) -> None:
    status, lines = train("run", "--steps", 3, "--log-every", 1, "--log", "/dev/full")
    assert status == 0
    lost = [line for line in lines if line.get("event") == "log_lost"]
    assert [line["what"] for line in lost] == ["No space left on device"]
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3]


def test_a_line_that_the_disk_cut_does_not_spoil_the_next(tmp_path: Path) -> None:
    log = TrainLog(tmp_path / "log")
    log.event("one")
    size = (tmp_path / "log").stat().st_size
    with files_limited_to(size + 5):
        log.event("two")
    log.event("three")
    log.close()
    first, cut, third = (tmp_path / "log").read_text().splitlines()
    assert json.loads(first)["event"] == "one"
    assert len(cut) == 5
    assert json.loads(third)["event"] == "three"


def test_two_runs_do_not_write_into_one_folder(train: Train, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    held = os.open(tmp_path / "run", os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        status, lines = train("run", "--steps", 1)
    finally:
        os.close(held)
    assert status == 1
    assert "another run is writing here" in lines[-1]["what"]
    assert train("run", "--steps", 1)[0] == 0


def test_what_a_killed_run_left_half_written_is_cleared(train: Train, tmp_path: Path) -> None:
    train("run", "--steps", 2, "--save-every", 1)
    (tmp_path / "run" / "step_1" / ".trainer_state.pt.7-ab.tmp").write_bytes(b"half")
    (tmp_path / "run" / ".removing_1").mkdir()
    train("run", "--steps", 3, "--save-every", 1)
    assert list((tmp_path / "run").rglob(".*")) == []


def test_a_resume_with_other_flags_says_which(train: Train) -> None:
    train("run", "--steps", 2, "--save-every", 2)
    _, lines = train("run", "--steps", 3, "--save-every", 2, "--lr", 0.5, "--log-every", 1, "--seed", 4)
    (resumed,) = [line for line in lines if line.get("event") == "resumed"]
    assert resumed["changed"] == {"steps": [2, 3], "seed": [0, 4], "lr": [0.0015, 0.5]}


def test_a_resume_on_another_target_is_refused(train: Train, target_folder: Path, tmp_path: Path) -> None:
    train("run", "--steps", 2, "--save-every", 2)
    other = tmp_path / "other"
    shutil.copytree(target_folder, other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "initializer_range": 0.5}))
    status, lines = train("run", "--steps", 3, "--target", other)
    assert status == 1
    assert "trained on another target" in lines[-1]["what"]


def test_a_trigger_that_cannot_be_taken_away_saves_once(
    train: Train, tmp_path: Path, monkeypatch: Any
) -> None:
    trigger, real = tmp_path / "SAVE_NOW", Path.unlink
    trigger.touch()

    def unlink(self: Path, missing_ok: bool = False) -> None:
        if self == trigger:
            raise PermissionError(13, "Permission denied", str(self))
        real(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    _, lines = train("run", "--steps", 4, "--save-every", 100, "--save-trigger", trigger)
    assert [line["step"] for line in lines if line.get("event") == "saved"] == [1, 4]


def test_ids_of_another_tokenizer_are_refused_before_training(
    target_folder: Path, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(Stopping, "listen", lambda self: None)
    data = tmp_path / "data.jsonl"
    data.write_text('{"id": "x", "input_ids": [1, 2, 260]}')
    argv = ["--target", target_folder, "--data", data, "--out", tmp_path / "run", *TINY, "--steps", 1]
    assert train_drafter.main(list(map(str, argv))) == 1
    assert "sample x has token ids outside the target's vocabulary of 260" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('{"input_ids": [1, 2], "loss_mask": [1]}', "2 input_ids but 1 entries"),
        ('{"input_ids": 5}', "not iterable"),
        ('{"prompt": "a"}', "'response' is missing"),
        ('{"messages": [{"role": "user", "content": "a"}]}', "nothing to supervise"),
        ('{"messages": ["a"]}', "data.jsonl:2"),
        ("{", "not JSON"),
        ('{"input_ids": [1]}', "no sample has two supervised tokens"),
    ],
)
def test_a_wrong_line_of_training_data_is_named(
    line: str, named: str, target_folder: Path, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(Stopping, "listen", lambda self: None)
    data = tmp_path / "data.jsonl"
    data.write_text("\n" + line)
    argv = ["--target", target_folder, "--data", data, "--out", tmp_path / "run", *TINY, "--steps", 1]
    assert train_drafter.main(list(map(str, argv))) == 1
    assert named in json.loads(capsys.readouterr().out.splitlines()[-1])["what"]
