"""However its features come and on however many ranks, the same flags train the same drafter."""

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
from dflash.features import stored, workers
from dflash.training.stop_requests import Stopping
from tests.payloads.conftest import PAYLOADS

TINY = [
    "--recipe",
    "tiny",
    "--threads",
    "1",
    "--batch",
    "2",
    "--anchors",
    "4",
    "--steps",
    "4",
    "--save-every",
    "4",
]
Train = Callable[..., tuple[int, list[dict[str, Any]]]]


@pytest.fixture
def train(target_folder: Path, tmp_path: Path, capsys: Any, monkeypatch: Any) -> Train:
    monkeypatch.setattr(Stopping, "listen", lambda self: None)

    def run(out: str, *more: object) -> tuple[int, list[dict[str, Any]]]:
        argv = ["--target", target_folder, "--out", tmp_path / out, *TINY, *more]
        status = train_drafter.main(list(map(str, argv)))
        return status, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def weights(folder: Path, step: int = 4) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = checkpoint.read(folder / f"step_{step}" / checkpoint.STATE_NAME)[
        "weights"
    ]
    return found


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor], tolerance: float = 0.0) -> bool:
    return all((one[name] - two[name]).abs().max() <= tolerance for name in one)


def store(target_folder: Path, samples_file: Path, out: Path) -> int:
    import store_features

    argv = ["--target", target_folder, "--data", samples_file, "--out", out, "--target-layer-ids", 1, 2, 3]
    return store_features.main(list(map(str, argv)))


def test_target_workers_behind_a_queue_train_the_same_drafter(
    train: Train, samples_file: Path, tmp_path: Path
) -> None:
    train("inline", "--data", samples_file)
    status, lines = train(
        "queued",
        "--data",
        samples_file,
        "--target-devices",
        "cpu,cpu,cpu",
        "--queue-bytes",
        100_000,
        "--log-every",
        1,
    )
    assert status == 0
    assert same(weights(tmp_path / "inline"), weights(tmp_path / "queued"))
    step = next(line for line in lines if line.get("step") == 3)
    assert {"depth", "bytes", "producer_wait_s", "consumer_wait_s"} == step["queue"].keys()
    assert step["workers"] == 3
    assert step["memory"]["peak"] > 0


def test_a_step_line_says_all_that_is_promised(train: Train, samples_file: Path) -> None:
    """hostkit, people and their dashboards read these names."""
    _, lines = train("run", "--data", samples_file, "--target-devices", "cpu", "--log-every", 1)
    (line,) = (line for line in lines if line.get("step") == 3 and "loss" in line)
    promised = {
        "step", "loss", "grad_norm", "lr", "tokens_per_s", "accuracy", "accept_len", "per_position", "anchors",
        "anchor_share", "memory", "queue", "workers", "time",
    }  # fmt: skip
    assert promised <= line.keys()
    assert line["memory"].keys() == {"allocated", "reserved", "peak", "retries"}
    assert line["queue"].keys() == {"depth", "bytes", "producer_wait_s", "consumer_wait_s"}
    assert line["anchors"] == 8, "two samples, four anchors each"
    assert line["anchor_share"] == round(8 / (2 * 31), 4)
    assert 0 < line["lr"] < 1.5e-3


def test_the_death_of_a_target_worker_ends_the_run_and_names_it(
    train: Train, samples_file: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    real, made = workers.batch_features, []

    def dies(*args: Any) -> Any:
        made.append(1)
        if len(made) == 3:
            raise RuntimeError("device lost")
        return real(*args)

    monkeypatch.setattr(workers, "batch_features", dies)
    status, lines = train("run", "--data", samples_file, "--target-devices", "cpu", "--steps", 50)
    assert status == 1
    assert lines[-1]["event"] == "producer_died"
    assert lines[-1]["worker"] == "0 on cpu"
    assert "device lost" in lines[-1]["what"]
    step = lines[-1]["step"]
    assert checkpoint.read(tmp_path / "run" / f"step_{step}" / "checkpoint.pt")["step"] == step


def test_stored_features_train_nearly_the_same_drafter_without_the_target(
    train: Train, target_folder: Path, samples_file: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    """Nearly: padded and single forwards differ in the last bits."""
    train("inline", "--data", samples_file)
    assert store(target_folder, samples_file, tmp_path / "features") == 0
    from dflash.training import setup

    monkeypatch.setattr(setup.Target, "load", lambda *_: pytest.fail("the target was loaded"))
    status, lines = train("offline", "--features", tmp_path / "features")
    assert status == 0, lines
    assert same(weights(tmp_path / "inline"), weights(tmp_path / "offline"), tolerance=2e-4)


def test_samples_are_stored_together_as_each_would_be_alone(
    target: Any, target_folder: Path, tmp_path: Path, capsys: Any
) -> None:
    import store_features
    from dflash.data import samples
    from dflash.data.samples import Sample

    text = list(b"def read(self, name):\n    return self.stream.read()\n")
    lengths = [40, 7, 23, 7, 52, 3]
    cut = [Sample(str(n), text[:n], [True] * n) for n in lengths]
    samples.write(tmp_path / "data.jsonl", cut)
    argv = ["--target", target_folder, "--data", tmp_path / "data.jsonl", "--out", tmp_path / "features"]
    argv += ["--target-layer-ids", 1, 4, "--dtype", "float32", "--batch-tokens", 46]
    assert store_features.main(list(map(str, argv))) == 0
    steps = [json.loads(line)["done"] for line in capsys.readouterr().out.splitlines() if "progress" in line]
    assert steps == [3, 4, 5, 6], "3, 7 and 7 tokens fit together"
    for number, sample in enumerate(cut):
        kept, rows, _ = stored.read(stored.file_of(tmp_path / "features", number))
        assert kept == sample
        alone = target.features(sample.input_ids, (1, 4))[0]
        assert rows.shape == alone.shape
        assert (rows - alone).abs().max() < 1e-4


def test_storing_goes_on_where_it_stopped_and_mixes_nothing(
    target_folder: Path, samples_file: Path, tmp_path: Path, capsys: Any
) -> None:
    out = tmp_path / "features"
    assert store(target_folder, samples_file, out) == 0
    files = stored.stored_files(out)
    kept = {file.name: file.stat().st_mtime_ns for file in files}
    files[3].unlink()
    assert store(target_folder, samples_file, out) == 0
    again = {file.name: file.stat().st_mtime_ns for file in stored.stored_files(out)}
    assert [name for name in kept if kept[name] != again[name]] == [files[3].name]
    capsys.readouterr()
    import store_features

    argv = ["--target", target_folder, "--data", samples_file, "--out", out, "--target-layer-ids", 1, 2, 4]
    assert store_features.main(list(map(str, argv))) == 1
    assert "features of another taps" in capsys.readouterr().out


def test_stored_features_of_another_target_are_refused(
    train: Train, target_folder: Path, samples_file: Path, tmp_path: Path
) -> None:
    store(target_folder, samples_file, tmp_path / "features")
    (target_folder / "chat_template.jinja").write_text("{{ messages }}")
    try:
        status, lines = train("offline", "--features", tmp_path / "features")
    finally:
        from dflash.tiny import byte_tokenizer

        (target_folder / "chat_template.jinja").write_text(byte_tokenizer.TEMPLATE)
    assert status == 1
    assert "features of another target" in lines[-1]["what"]


def test_autocast_computes_in_bf16_and_keeps_fp32_weights(
    train: Train, samples_file: Path, tmp_path: Path
) -> None:
    train("plain", "--data", samples_file)
    status, _ = train("mixed", "--data", samples_file, "--autocast")
    assert status == 0
    mixed = weights(tmp_path / "mixed")
    assert {t.dtype for t in mixed.values()} == {torch.float32}
    assert not same(weights(tmp_path / "plain"), mixed)
    assert same(weights(tmp_path / "plain"), mixed, tolerance=0.02)


def test_a_sliding_drafter_trains_and_loads_as_one(train: Train, samples_file: Path, tmp_path: Path) -> None:
    from dflash.drafter.loading import load_drafter

    status, _ = train("run", "--data", samples_file, "--sliding-layers", 1, "--sliding-window", 16)
    assert status == 0
    config = load_drafter(tmp_path / "run" / "step_4").config
    assert [config.window(layer) for layer in range(2)] == [16, None]


@pytest.mark.slow
def test_two_ranks_train_the_drafter_of_one_rank_with_twice_the_batches(
    train: Train, target_folder: Path, samples_file: Path, tmp_path: Path
) -> None:
    train("one", "--data", samples_file, "--accumulate", 2)
    argv = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        str(PAYLOADS / "train_drafter.py"), "--target", target_folder, "--out", tmp_path / "two", *TINY,
        "--data", samples_file,
    ]  # fmt: skip
    env = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, timeout=160, env=env)
    assert done.returncode == 0, done.stderr[:4000]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert sum(line.get("event") == "started" for line in lines) == 1, "one rank speaks"
    assert lines[-1]["event"] == "finished"
    assert same(weights(tmp_path / "one"), weights(tmp_path / "two"), tolerance=1e-5)


def test_wandb_that_is_not_there_is_said_before_the_training(train: Train, samples_file: Path) -> None:
    status, lines = train("run", "--data", samples_file, "--wandb", "drafters")
    assert status == 1
    assert "Python package wandb is missing" in lines[-1]["what"]
