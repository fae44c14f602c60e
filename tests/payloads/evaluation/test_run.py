"""An evaluation measures what it says, keeps what it made, and says what it did not measure."""

from __future__ import annotations

import dataclasses
import json
import re
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import eval_drafter
from dflash.data import reference_features
from dflash.data.references import Reference
from dflash.drafter.config import DraftConfig
from dflash.drafter.model import Drafter
from dflash.evaluation import inputs
from dflash.evaluation.anchors import candidates, choose_anchors
from dflash.evaluation.compatibility import strangeness
from dflash.evaluation.evaluator import Evaluator
from dflash.evaluation.intervals import t_interval
from dflash.target.greedy import greedy
from dflash.target.model import Target

Eval = Callable[..., tuple[int, list[dict[str, Any]]]]


@pytest.fixture
def evaluate(
    target_folder: Path, drafter_folder: Path, prompts_file: Path, tmp_path: Path, capsys: Any
) -> Eval:
    """Run the evaluator's entry point in this process, on fixture A's drafter."""

    def run(*more: object) -> tuple[int, list[dict[str, Any]]]:
        argv = [
            "--checkpoint", drafter_folder, "--target", target_folder, "--prompts", prompts_file, "--work",
            tmp_path / "work", "--out", tmp_path / "result.json", "--max-new-tokens", 60, "--threads", 1, *more,
        ]  # fmt: skip
        status = eval_drafter.main(list(map(str, argv)))
        return status, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def result(tmp_path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((tmp_path / "result.json").read_text())
    return document


def test_a_result_adds_up(evaluate: Eval, tmp_path: Path) -> None:
    status, lines = evaluate("--id", "abc", "--blocks-per-prompt", 10, "--ddtree", "4,16,64")
    assert status == 0, lines
    assert lines[-1] == {"event": "done", "result": str(tmp_path / "result.json"), "status": "complete"}
    document = result(tmp_path)
    assert (document["schema"], document["id"], document["status"]) == (
        "hostkit.eval-result/1",
        "abc",
        "complete",
    )
    blocks = [block for prompt in document["per_prompt"] for block in prompt["blocks"]]
    assert len(blocks) == document["coverage"]["blocks"] == 40
    for name in ("accept_len", "accept_len_top4_oracle", "accept_len_top8_oracle"):
        metric = document["metrics"][name]
        assert metric["sum"] == sum(block[name] for block in blocks)
        assert metric["mean"] == metric["sum"] / metric["n"]
        means = [sum(b[name] for b in p["blocks"]) / 10 for p in document["per_prompt"]]
        assert metric["interval"] == pytest.approx(list(t_interval(means)))
    for block in blocks:
        assert block["accept_len"] <= block["accept_len_top4_oracle"] <= block["accept_len_top8_oracle"] <= 7
        lengths = [block["ddtree"][b] for b in ("4", "16", "64")]
        assert lengths == sorted(lengths)
        assert lengths[0] <= 4
        assert block["accept_len"] == (block["hits"] + [0]).index(0)
    loops = [prompt["tau_loop"] for prompt in document["per_prompt"]]
    assert document["metrics"]["tau_loop"]["sum"] == sum(loop["tokens"] for loop in loops)
    assert document["per_position"]["streak_at_least"][0] == sum(b["accept_len"] >= 1 for b in blocks)
    assert document["target_agreement"] == {"agree": 240, "of": 240, "rate": 1.0, "passed": True}
    assert document["isolation"]["visible_devices"] == ""
    assert document["isolation"]["cuda_available"] is False
    assert set(document["coverage"]["by_domain"]) == {"code", "prose"}
    assert "dflash/drafter/model.py" in document["provenance"]["harness"]


def test_a_quick_sample_lies_in_the_full_one(evaluate: Eval, tmp_path: Path) -> None:
    evaluate("--blocks-per-prompt", 12)
    full = {p["id"]: {b["anchor"]: b for b in p["blocks"]} for p in result(tmp_path)["per_prompt"]}
    evaluate("--blocks-per-prompt", 4, "--max-prompts", 2)
    quick = {p["id"]: {b["anchor"]: b for b in p["blocks"]} for p in result(tmp_path)["per_prompt"]}
    assert set(quick) == {"held-0", "held-1"}, "one of each domain"
    for prompt, blocks in quick.items():
        assert len(blocks) == 4
        assert all(full[prompt][anchor] == block for anchor, block in blocks.items())


def test_a_second_run_loads_no_target(evaluate: Eval, tmp_path: Path, monkeypatch: Any) -> None:
    evaluate()
    first = result(tmp_path)

    def load(*_: Any) -> None:
        raise AssertionError("the target was loaded although all is cached")

    monkeypatch.setattr(inputs.Target, "load", load)
    assert evaluate()[0] == 0
    again = result(tmp_path)
    assert again["per_prompt"] == first["per_prompt"]
    assert again["metrics"] == first["metrics"]


def test_an_interrupted_extraction_goes_on(evaluate: Eval, tmp_path: Path, monkeypatch: Any) -> None:
    real, computed = reference_features.compute, []

    def stop_at_third(*args: Any) -> Any:
        if len(computed) == 2:
            raise KeyboardInterrupt
        computed.append(1)
        return real(*args)

    monkeypatch.setattr(reference_features, "compute", stop_at_third)
    assert evaluate()[0] == 130
    assert not (tmp_path / "result.json").exists()
    assert len(list((tmp_path / "work" / "features").iterdir())) == 2
    monkeypatch.setattr(reference_features, "compute", lambda *a: computed.append(1) or real(*a))
    assert evaluate()[0] == 0
    assert len(computed) == 4


def test_a_damaged_feature_file_is_made_again(evaluate: Eval, tmp_path: Path) -> None:
    evaluate("--max-prompts", 1)
    (file,) = (tmp_path / "work" / "features").iterdir()
    file.write_bytes(file.read_bytes()[:-5])
    assert evaluate("--max-prompts", 1)[0] == 0


def test_a_prompt_with_too_short_an_answer_is_missing_and_the_result_partial(
    evaluate: Eval, tmp_path: Path, monkeypatch: Any
) -> None:
    real = inputs.greedy

    def short_for_one(target: Any, ids: Any, limit: int, stops: Any) -> Any:
        return real(target, ids, 5 if not computed.append(1) and len(computed) == 2 else limit, stops)

    computed: list[int] = []
    monkeypatch.setattr(inputs, "greedy", short_for_one)
    status, lines = evaluate()
    assert status == 0
    assert lines[-1]["status"] == "partial"
    document = result(tmp_path)
    assert document["coverage"]["missing"] == [
        {"prompt": "held-1", "domain": "code", "reason": "its answer has 5 tokens; a block needs 8"}
    ]
    assert document["coverage"]["by_domain"]["code"] == {"asked": 2, "done": 1, "blocks": 30}


def test_references_that_are_not_the_targets_do_not_pass_the_gate(
    evaluate: Eval, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(
        inputs, "greedy", lambda t, ids, n, s: list(b"Something else entirely, by another model.")
    )
    status, lines = evaluate()
    assert status == 1
    assert lines[-1]["event"] == "error"
    assert "reference tokens" in lines[-1]["what"]
    assert "template" in lines[-1]["hint"]
    assert not (tmp_path / "result.json").exists()


def test_a_smoke_run_does_one_block_and_writes_no_result(evaluate: Eval, tmp_path: Path) -> None:
    status, lines = evaluate("--smoke")
    assert status == 0
    assert lines[-1]["event"] == "smoke"
    assert lines[-1]["ok"] is True
    assert not (tmp_path / "result.json").exists()
    assert {line["of"] for line in lines if line.get("phase") in ("references", "blocks")} == {1}
    (kept,) = (tmp_path / "work" / "references").iterdir()
    assert len(json.loads(kept.read_text())["response_ids"]) == 16, "two blocks of the trained size"


def test_a_smoke_run_has_room_for_a_block_of_any_size(evaluate: Eval) -> None:
    status, lines = evaluate("--smoke", "--block-size", 40)
    assert status == 0, lines
    assert lines[-1]["ok"] is True


def test_another_block_size_is_recorded_and_a_caveat(evaluate: Eval, tmp_path: Path) -> None:
    evaluate("--block-size", 5, "--max-prompts", 1)
    document = result(tmp_path)
    assert (document["settings"]["block_size"], document["settings"]["trained_block_size"]) == (5, 8)
    assert len(document["per_position"]["hits"]) == 4
    assert "measured at block size 5, trained at 8" in document["caveats"]


def test_decisions_in_both_dtypes_are_compared_on_request(evaluate: Eval, tmp_path: Path) -> None:
    evaluate("--max-prompts", 1)
    assert result(tmp_path)["dtype_check"] is None
    evaluate("--max-prompts", 1, "--compare-dtypes")
    check = result(tmp_path)["dtype_check"]
    assert check["against"] == "bfloat16"
    assert check["of"] == 30 * 7
    assert 0 <= check["changed"] < 0.1 * check["of"]


def test_extraction_ahead_leaves_nothing_for_the_target_to_do(
    evaluate: Eval, target_folder: Path, drafter_folder: Path, prompts_file: Path, tmp_path: Path,
    capsys: Any, monkeypatch: Any,
) -> None:  # fmt: skip
    import extract_features

    argv = ["--checkpoint", drafter_folder, "--target", target_folder, "--prompts", prompts_file, "--work"]
    argv += [tmp_path / "work", "--out", tmp_path / "result.json", "--max-new-tokens", 60]
    assert extract_features.main(list(map(str, argv))) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0]["event"] == "memory"
    assert lines[-1]["prompts"] == 4
    assert not (tmp_path / "result.json").exists()
    monkeypatch.setattr(inputs.Target, "load", lambda *_: pytest.fail("the target was loaded"))
    assert evaluate()[0] == 0


def test_a_drafter_of_another_vocabulary_is_refused(
    evaluate: Eval, tmp_path: Path, small_config: Any
) -> None:
    from dflash.drafter.loading import export

    fresh = Drafter(small_config).reset_parameters(torch.Generator().manual_seed(0))
    export(small_config, dict(fresh.state_dict()), tmp_path / "other")
    status, lines = evaluate("--checkpoint", tmp_path / "other")
    assert status == 1
    assert lines[-1]["event"] == "error"


def test_anchors_never_lie_in_the_prompt_nor_short_of_labels() -> None:
    positions = candidates(prompt_length=10, total=40, drafted=7)
    assert (positions.start, positions.stop - 1) == (10, 32)
    assert positions[-1] + 7 == 39
    assert len(candidates(10, 12, 7)) == 0


def test_a_smaller_number_of_anchors_is_a_part_of_a_larger_one() -> None:
    positions = range(17, 400)
    sets = [set(choose_anchors(positions, n, 0, "p")) for n in (3, 10, 30)]
    assert sets[0] < sets[1] < sets[2]
    assert set(choose_anchors(positions, 30, 1, "p")) != sets[2]
    assert set(choose_anchors(positions, 30, 0, "q")) != sets[2]


@pytest.mark.parametrize(("shift", "right"), [(0, True), (1, False), (-1, False)])
def test_an_oracle_scores_all_and_a_shifted_one_does_not(
    target: Target, drafter: Drafter, monkeypatch: Any, shift: int, right: bool
) -> None:
    ids = list(b"class Reader:\n")
    known = Reference("p", "x", ids, greedy(target, ids, 60, ()), False, "target", "t", "target")
    # A text without repetition, or a shifted copy of it could be right by chance.
    known = Reference(**{**known.__dict__, "response_ids": list(range(100, 160))})

    def logits(self: Evaluator, context: Any, all_ids: Any, anchors: list[int]) -> torch.Tensor:
        out = torch.zeros(len(anchors), 7, 260)
        for row, anchor in enumerate(anchors):
            for slot in range(7):
                at = min(anchor + 1 + slot + shift, len(all_ids) - 1)
                out[row, slot, all_ids[at]] = 50.0
        return out

    monkeypatch.setattr(Evaluator, "block_logits", logits)
    features, _ = target.features(known.ids, drafter.config.target_layer_ids)
    measured = Evaluator(drafter, target.vocabulary, 8, [7]).measure(known, features, 10, 0)
    assert {b.accept_len for b in measured.blocks} == ({7} if right else {0})
    if right:
        assert {b.ddtree["7"] for b in measured.blocks} == {7}
        assert measured.tau_loop is not None
        assert measured.tau_loop["tokens"] == 8 * measured.tau_loop["rounds"]


def test_all_blocks_together_equal_one_at_a_time(target: Target, drafter: Drafter) -> None:
    ids = list(b"    def write(self, data):\n")
    known = Reference("p", "x", ids, greedy(target, ids, 80, ()), False, "target", "t", "target")
    features, _ = target.features(known.ids, drafter.config.target_layer_ids)
    together = Evaluator(drafter, target.vocabulary, 8, [16], blocks_at_once=8)
    single = Evaluator(drafter, target.vocabulary, 8, [16], blocks_at_once=1)
    measured = together.measure(known, features, 30, 0)
    assert measured == single.measure(known, features, 30, 0)
    assert len(measured.blocks) == 30
    context = drafter.read_context(features[None])
    anchors = list(range(len(ids), len(ids) + 30))
    apart = torch.cat([single.block_logits(context, known.ids, [a]) for a in anchors])
    assert torch.allclose(together.block_logits(context, known.ids, anchors), apart, atol=2e-5)


def test_a_result_that_cannot_be_written_is_refused_before_anything_is_measured(
    evaluate: Eval, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(inputs.Inputs, "gather", lambda *_: pytest.fail("it was measured"))
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for out, named in (
        (tmp_path / "file" / "r.json", "Not a directory|exists"),
        (tmp_path / "folder", "directory"),
    ):
        status, lines = evaluate("--out", out)
        assert status == 1
        assert str(out) in lines[-1]["what"]
        assert re.search(named, lines[-1]["what"])
    assert [p.name for p in (tmp_path / "folder").iterdir()] == []


def test_a_full_disk_under_the_cache_is_one_clear_error_and_the_next_run_goes_on(
    evaluate: Eval, tmp_path: Path
) -> None:
    """A limit on the size of files stands for the full disk."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        status, lines = evaluate()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert status == 1
    assert lines[-1]["event"] == "error"
    assert re.search(r"work/features/.*: File too large", lines[-1]["what"])
    assert list((tmp_path / "work").rglob("*.tmp")) == []
    status, lines = evaluate()
    assert status == 0, lines


def test_a_cache_folder_that_cannot_be_made_is_one_clear_error(
    evaluate: Eval, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(inputs.Inputs, "gather", lambda *_: pytest.fail("it was measured"))
    (tmp_path / "work").write_text("a file")
    status, lines = evaluate()
    assert status == 1
    assert str(tmp_path / "work") in lines[-1]["what"]


def test_nothing_measured_is_a_failed_result_that_says_why(evaluate: Eval, tmp_path: Path) -> None:
    status, lines = evaluate("--max-new-tokens", 7)
    assert status == 1
    assert "a block needs 8" in lines[-1]["what"]
    document = result(tmp_path)
    assert document["status"] == "failed"
    assert len(document["coverage"]["missing"]) == 4
    assert document["metrics"]["accept_len"] == {
        "mean": None,
        "sum": 0,
        "n": 0,
        "prompts": 0,
        "prompt_mean": None,
        "interval": None,
    }


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hidden_size": 96}, "hidden size is 96; this one's is 80"),
        ({"num_target_layers": 8}, "depth in layers is 8; this one's is 6"),
        ({"vocab_size": 300}, "vocabulary is 300; this one's is 260"),
    ],
)
def test_a_drafter_of_another_target_is_refused_before_anything_is_measured(
    evaluate: Eval, drafter_folder: Path, tmp_path: Path, change: dict[str, int], named: str
) -> None:
    from dflash.drafter.loading import export
    from dflash.drafter.model import Drafter as Module

    config = dataclasses.replace(DraftConfig.read(drafter_folder), **change)
    made = Module(config).reset_parameters(torch.Generator().manual_seed(0))
    export(config, dict(made.named_parameters()), tmp_path / "other")
    status, lines = evaluate("--checkpoint", tmp_path / "other")
    assert status == 1
    assert named in lines[-1]["what"]


def test_what_a_drafter_was_trained_on_is_held_against_what_it_is_measured_on() -> None:
    identity = {"template_sha256": "t", "fingerprint": "f", "id": "x@f"}

    def said(thinking: Any = None, **trained: str) -> list[str]:
        return strangeness({"target": {**identity, **trained}, "thinking": thinking}, identity, False)

    assert said() == said(thinking=False) == strangeness({}, identity, False) == []
    assert said(template_sha256="u", fingerprint="g") == [
        "trained with another chat template than this target's"
    ]
    assert said(fingerprint="g", id="x@g") == ["trained on another revision of the target: x@g"]
    assert said(thinking=True) == ["trained with thinking on, measured with it the other way"]


def test_a_prompt_that_fills_the_targets_positions_is_missing(evaluate: Eval, tmp_path: Path) -> None:
    prompts = tmp_path / "long.jsonl"
    entries = [{"id": "long", "text": "x" * 1024}, {"id": "near", "text": "def f(x):\n" * 100}]
    prompts.write_text("\n".join(map(json.dumps, entries)))
    status, lines = evaluate("--prompts", prompts)
    assert status == 0, lines
    document = result(tmp_path)
    (missing,) = document["coverage"]["missing"]
    assert "1024 tokens fill the target's 1024 positions" in missing["reason"]
    (kept,) = (json.loads(f.read_text()) for f in (tmp_path / "work" / "references").iterdir())
    assert len(kept["response_ids"]) == 24


@pytest.mark.parametrize(
    "flags",
    [
        ("--max-prompts", 0),
        ("--max-prompts", -1),
        ("--blocks-per-prompt", 0),
        ("--block-size", 1),
        ("--ddtree", "16,x"),
        ("--ddtree", "0"),
        ("--threads", -1),
        ("--min-agreement", 95),
        ("--api", "localhost:8000"),
        ("--api", "http://127.0.0.1:9/v1", "--api-timeout", 0),
    ],
)
def test_a_flag_that_cannot_be_meant_is_refused_by_its_name(evaluate: Eval, flags: tuple) -> None:
    status, lines = evaluate(*flags)
    assert status == 1
    assert lines[-1]["event"] == "error"
    assert (flags[2] if len(flags) > 2 else flags[0]) in lines[-1]["what"]


def eval_argv(
    target_folder: Path, drafter_folder: Path, prompts_file: Path, tmp_path: Path, out: str
) -> list[Any]:
    return [
        "--checkpoint", drafter_folder, "--target", target_folder, "--prompts", prompts_file, "--work",
        tmp_path / "work", "--out", tmp_path / out, "--max-new-tokens", 60, "--threads", 1,
    ]  # fmt: skip


@pytest.mark.slow
def test_two_runs_at_once_on_one_cache_give_one_result(
    target_folder: Path, drafter_folder: Path, prompts_file: Path, tmp_path: Path, script: Any
) -> None:
    def start(out: str) -> Any:
        argv = eval_argv(target_folder, drafter_folder, prompts_file, tmp_path, out)
        return script("eval_drafter.py", *argv).start()

    with start("one.json") as one, start("two.json") as two:
        said = [run.communicate(timeout=170)[0] for run in (one, two)]
    assert (one.returncode, two.returncode) == (0, 0), said
    first, second = (json.loads((tmp_path / name).read_text()) for name in ("one.json", "two.json"))
    assert first["per_prompt"] == second["per_prompt"]
    assert list((tmp_path / "work").rglob("*.tmp")) == []


def test_an_interrupt_is_one_event_and_its_own_status(
    target_folder: Path, drafter_folder: Path, prompts_file: Path, tmp_path: Path, script: Any
) -> None:
    argv = eval_argv(target_folder, drafter_folder, prompts_file, tmp_path, "r.json")
    with script("eval_drafter.py", *argv, "--max-new-tokens", 250).start() as run:
        first = run.stdout.readline()
        run.send_signal(signal.SIGINT)
        rest = run.stdout.read()
    assert json.loads(first)["phase"] == "references"
    assert run.returncode == 130
    assert json.loads(rest.splitlines()[-1])["what"] == "interrupted"
    assert not (tmp_path / "r.json").exists()


def test_a_missing_package_is_said_plainly(
    target_folder: Path, drafter_folder: Path, prompts_file: Path, tmp_path: Path, script: Any
) -> None:
    """As on a host without it: an import hook hides the package."""
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hides:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name.split('.')[0] == 'transformers':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Hides())\n"
    )
    run = script(
        "eval_drafter.py", *eval_argv(target_folder, drafter_folder, prompts_file, tmp_path, "r.json")
    )
    run.env["PYTHONPATH"] = str(tmp_path / "hidden")
    status, lines, err = run.run()
    assert status == 1
    assert lines[-1]["what"] == "Python package transformers is missing"
    assert sys.executable in lines[-1]["hint"]
    assert err == ""


def test_a_target_without_its_tokenizer_is_refused_not_given_an_empty_one(
    evaluate: Eval, fixture_a: Path
) -> None:
    status, lines = evaluate("--target", fixture_a / "target")
    assert status == 1
    assert "no tokenizer.json here" in lines[-1]["what"]
