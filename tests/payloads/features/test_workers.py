"""Responses sampled for training are kept as they come, under a name that says what they are of."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

import train_drafter
from dflash.training import data
from dflash.training.log import TrainLog


@pytest.fixture
def args(target_folder: Path, tmp_path: Path, monkeypatch: Any) -> argparse.Namespace:
    monkeypatch.setattr(data, "BATCH", 4)
    flags = ["--recipe", "tiny", "--target", target_folder, "--out", tmp_path, "--steps", 1]
    flags += ["--pool", 10, "--prompt-tokens", 8, "--response-tokens", 6]
    return train_drafter.arguments(list(map(str, flags)))


def test_a_pool_that_was_cut_goes_on_with_the_next_batch_and_is_the_same(
    args: argparse.Namespace, target: Any, target_folder: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(str(target_folder), local_files_only=True)
    log = TrainLog(None, silent=True)
    real, asked = data.sample_responses, []

    def sample(*given: Any, **named: Any) -> Any:
        asked.append(named["first_id"])
        if len(asked) == 3:
            raise KeyboardInterrupt
        return real(*given, **named)

    monkeypatch.setattr(data, "sample_responses", sample)
    with pytest.raises(KeyboardInterrupt):
        data.load_samples(args, target, tokenizer, log)
    found = data.load_samples(args, target, tokenizer, log)
    assert asked == [0, 4, 8, 8]
    assert [s.id for s in found] == [f"sampled-{i}" for i in range(10)]
    assert [file.name for file in tmp_path.iterdir()] == [data.pool_name(args)]
    asked[:] = [0] * 9
    (tmp_path / data.pool_name(args)).unlink()
    assert data.load_samples(args, target, tokenizer, log) == found, "in one go"
    assert data.load_samples(args, target, tokenizer, log) == found
    assert len(asked) == 9 + 3, "kept, not sampled again"


def test_a_pool_of_another_temperature_or_target_has_another_name(
    args: argparse.Namespace, target_folder: Path, tmp_path: Path
) -> None:
    import json
    import shutil

    name = data.pool_name(args)
    assert data.pool_name(argparse.Namespace(**{**vars(args), "temperature": 1.0})) != name
    other = tmp_path / "other"
    shutil.copytree(target_folder, other)
    assert data.pool_name(argparse.Namespace(**{**vars(args), "target": other})) == name
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-5}))
    assert data.pool_name(argparse.Namespace(**{**vars(args), "target": other})) != name
