"""An evaluation that was killed goes on with the next prompt, and its result is that of one that was not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import eval_drafter
from dflash.evaluation.evaluator import Evaluator

Eval = Callable[..., list[dict[str, Any]]]
FIGURES = (
    "metrics",
    "by_domain",
    "by_context",
    "per_position",
    "per_prompt",
    "coverage",
    "dtype_check",
    "caveats",
)


@pytest.fixture
def argv(target_folder: Path, drafter_folder: Path, prompts_file: Path, tmp_path: Path) -> list[str]:
    drafter = tmp_path / "drafter"
    shutil.copytree(drafter_folder, drafter)
    flags = [
        "--checkpoint", drafter, "--target", target_folder, "--prompts", prompts_file, "--work", tmp_path / "work",
        "--out", tmp_path / "result.json", "--max-new-tokens", 40, "--blocks-per-prompt", 6, "--threads", 1,
    ]  # fmt: skip
    return list(map(str, flags))


@pytest.fixture
def evaluate(argv: list[str], capsys: Any) -> Eval:
    def run(*more: object) -> list[dict[str, Any]]:
        eval_drafter.main([*argv, *map(str, more)])
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


@pytest.fixture
def measured(monkeypatch: Any) -> list[str]:
    """Ids of the prompts whose blocks are measured."""
    real, asked = Evaluator.measure, []

    def measure(self: Evaluator, reference: Any, *args: Any, **named: Any) -> Any:
        asked.append(reference.prompt_id)
        return real(self, reference, *args, **named)

    monkeypatch.setattr(Evaluator, "measure", measure)
    return asked


def figures(tmp_path: Path) -> dict[str, Any]:
    document = json.loads((tmp_path / "result.json").read_text())
    return {name: document[name] for name in FIGURES}


def test_a_run_interrupted_at_any_prompt_goes_on_there(
    evaluate: Eval, measured: list[str], tmp_path: Path, monkeypatch: Any
) -> None:
    evaluate("--compare-dtypes")
    whole = figures(tmp_path)
    assert measured == ["held-0", "held-1", "held-2", "held-3"]
    shutil.rmtree(tmp_path / "work" / "blocks")
    (tmp_path / "result.json").unlink()
    counted = Evaluator.measure
    for number in range(4):
        measured.clear()

        def stop_at_the_second(self: Evaluator, *args: Any, **named: Any) -> Any:
            if measured:
                raise KeyboardInterrupt
            return counted(self, *args, **named)

        monkeypatch.setattr(Evaluator, "measure", stop_at_the_second)
        lines = evaluate("--compare-dtypes")
        assert measured == [f"held-{number}"]
        told = [line["kept"] for line in lines if "kept" in line]
        assert told == ([number] if number else [])
        counted_up = [line["done"] for line in lines if line.get("phase") == "blocks"]
        assert counted_up == list(range(number or 1, min(number + 1, 4) + 1))
    assert figures(tmp_path) == whole
    document = json.loads((tmp_path / "result.json").read_text())
    assert document["provenance"]["prompts_from_records"] == 3


def test_nothing_is_loaded_where_every_prompt_has_its_record(
    evaluate: Eval, measured: list[str], tmp_path: Path, monkeypatch: Any
) -> None:
    evaluate()
    whole = figures(tmp_path)
    measured.clear()
    from dflash.evaluation import run as evaluation_run

    monkeypatch.setattr(evaluation_run.Vocabulary, "read", lambda *_: pytest.fail("the head was read"))
    evaluate()
    assert measured == []
    assert figures(tmp_path) == whole


@pytest.mark.parametrize(
    "flags",
    [("--seed", 1), ("--blocks-per-prompt", 5), ("--ddtree", "16"), ("--block-size", 5), ("--no-loop",),
     ("--dtype", "bfloat16"), ("--compare-dtypes",), ("--max-new-tokens", 39), ("--threads", 2), ("--smoke",)],
)  # fmt: skip
def test_a_record_of_other_settings_is_not_taken(
    evaluate: Eval, measured: list[str], flags: tuple[object, ...]
) -> None:
    import torch

    evaluate("--max-prompts", 1)
    try:
        evaluate("--max-prompts", 1, *flags)
    finally:
        torch.set_num_threads(1)
    assert measured == ["held-0", "held-0"]


def test_a_record_of_other_weights_is_not_taken(evaluate: Eval, measured: list[str], tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    evaluate("--max-prompts", 1)
    file = tmp_path / "drafter" / "model.safetensors"
    tensors = load_file(file)
    tensors["norm.weight"][0] *= 2
    save_file(tensors, file)
    evaluate("--max-prompts", 1)
    assert measured == ["held-0", "held-0"]


@pytest.mark.parametrize("content", ["", "{", "{}", '{"result": {"blocks": [3]}, "compared": null}', "[]"])
def test_a_record_that_does_not_read_is_measured_again(
    evaluate: Eval, measured: list[str], tmp_path: Path, content: str
) -> None:
    evaluate("--max-prompts", 1)
    whole = figures(tmp_path)
    (record,) = (tmp_path / "work" / "blocks").iterdir()
    sound = record.read_text()
    record.write_text(content)
    evaluate("--max-prompts", 1)
    assert measured == ["held-0", "held-0"]
    assert (record.read_text(), figures(tmp_path)) == (sound, whole)


@pytest.mark.slow
def test_kill_9_after_any_prompt_changes_nothing_in_the_result(
    script: Any, argv: list[str], tmp_path: Path
) -> None:
    # Trees large enough that a prompt takes its time: the kill comes while the next one is measured.
    argv = [*argv, "--blocks-per-prompt", "30", "--ddtree", "4096"]
    assert script("eval_drafter.py", *argv).run()[0] == 0
    whole = figures(tmp_path)
    shutil.rmtree(tmp_path / "work")
    (tmp_path / "result.json").unlink()
    for phase, done in (("references", 2), ("features", 3), ("blocks", 1), ("blocks", 2), ("blocks", 3)):
        running = script("eval_drafter.py", *argv).start()
        for text in running.stdout:
            line = json.loads(text)
            if line.get("phase") == phase and line["done"] >= done:
                break
        running.kill()
        running.communicate()
        assert running.returncode == -9
        assert not (tmp_path / "result.json").exists()
    status, lines, _ = script("eval_drafter.py", *argv).run()
    assert status == 0
    kept = [line["kept"] for line in lines if "kept" in line]
    assert kept and kept[0] >= 3
    assert figures(tmp_path) == whole
