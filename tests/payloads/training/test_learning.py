"""A drafter trained on a small real target goes from nothing to drafts that the target accepts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

TRAIN = ["--recipe", "tiny", "--threads", 1, "--log-every", 50]


def accept_len(script: Any, tmp_path: Path, step: int, target: Path, prompts: Path) -> dict[str, Any]:
    out = tmp_path / f"result-{step}.json"
    status, lines, errors = script(
        "eval_drafter.py", "--checkpoint", tmp_path / "run" / f"step_{step}" / "checkpoint.pt", "--target", target,
        "--prompts", prompts, "--work", tmp_path / "work", "--out", out, "--blocks-per-prompt", 8, "--threads", 1,
    ).run()  # fmt: skip
    assert status == 0, (lines[-1:], errors[-500:])
    metrics: dict[str, Any] = json.loads(out.read_text())["metrics"]
    return metrics


def test_lengths_rise_from_about_nothing_to_above_two(
    target_folder: Path, sampled_prompts: Any, tmp_path: Path, script: Any
) -> None:
    """The target of fixture A, so that only the drafter is trained here."""
    status, lines, errors = script(
        "train_drafter.py", "--target", target_folder, "--out", tmp_path / "run", *TRAIN,
        "--pool", 128, "--steps", 120, "--save-every", 120,
    ).run()  # fmt: skip
    assert status == 0, (lines[-1:], errors[-500:])
    first = next(line for line in lines if line.get("step") == 1)
    assert first["accept_len"] < 0.3
    trained = accept_len(script, tmp_path, 120, target_folder, sampled_prompts(target_folder))
    assert trained["accept_len"]["mean"] > 2.0
    chain, top4, top8 = (
        trained[n]["mean"] for n in ("accept_len", "accept_len_top4_oracle", "accept_len_top8_oracle")
    )
    assert chain <= top4 <= top8
    assert trained["accept_len_ddtree@16"]["mean"] <= trained["accept_len_ddtree@64"]["mean"]


@pytest.mark.slow
def test_a_target_made_on_the_spot_gets_a_drafter_above_two(
    sampled_prompts: Any, tmp_path: Path, script: Any
) -> None:
    target = tmp_path / "target"
    status, lines, errors = script("make_tiny_target.py", "--out", target, "--steps", 250).run()
    assert status == 0, (lines[-1:], errors[-500:])
    status, lines, errors = script(
        "train_drafter.py", "--target", target, "--out", tmp_path / "run", *TRAIN,
        "--steps", 300, "--save-every", 300,
    ).run()  # fmt: skip
    assert status == 0, (lines[-1:], errors[-500:])
    assert accept_len(script, tmp_path, 300, target, sampled_prompts(target))["accept_len"]["mean"] > 2.0


def test_a_tiny_target_is_whole_or_absent(tmp_path: Path, script: Any) -> None:
    target = tmp_path / "target"
    status, lines, errors = script(
        "make_tiny_target.py", "--out", target, "--steps", 2, "--hidden", 32, "--layers", 4, "--length", 32
    ).run()
    assert status == 0, errors[-500:]
    assert lines[-1]["event"] == "done"
    assert {p.name for p in tmp_path.iterdir()} == {"target"}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {p.name for p in target.iterdir()}


@pytest.mark.soak
@pytest.mark.timeout(5400)
def test_nine_hundred_steps_reach_the_length_of_the_reference_toy(
    sampled_prompts: Any, tmp_path: Path, script: Any
) -> None:
    """Some 10 minutes on an idle core: a target of 800 steps, three drafters of 900, mean of 2.8 of 7 at least."""
    target = tmp_path / "target"
    assert script("make_tiny_target.py", "--out", target, "--steps", 800).run(timeout=900)[0] == 0
    prompts = sampled_prompts(target)
    means = []
    for seed in range(3):
        folder = tmp_path / f"seed-{seed}"
        status, lines, errors = script(
            "train_drafter.py", "--target", target, "--out", folder / "run", *TRAIN, "--pool", 1024,
            "--steps", 900, "--save-every", 900, "--seed", seed,
        ).run(timeout=1800)  # fmt: skip
        assert status == 0, (lines[-1:], errors[-500:])
        means.append(accept_len(script, folder, 900, target, prompts)["accept_len"]["mean"])
    assert sum(means) / 3 >= 2.8
