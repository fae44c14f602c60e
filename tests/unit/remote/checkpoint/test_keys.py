"""A foreign trainer's layout: what the inventory names is found through nesting and wrappers, and loads safely."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import checkpoint_reader
from checkpoint import keys as checkpoint_keys
from subset import stream
from subset.lay_out import lay_out

WEIGHTS = ("fc.weight", "norm.weight")


def tensors(*, before: str = "", scale: float = 1.0) -> dict[str, Any]:
    import torch

    return {before + name: scale * torch.arange(6, dtype=torch.float32) for name in WEIGHTS}


def save(path: Path, saved: Any) -> str:
    import torch

    torch.save(saved, path)
    return str(path)


def take(path: str, keys: list[str], **more: Any) -> dict[str, Any]:
    """Copy the selection, and load it as safely as torch can."""
    import torch

    layout = lay_out(path, keys, **more)
    with Path(path + ".out").open("wb") as out:
        stream.send(layout, path, out.write)
    found = torch.load(path + ".out", weights_only=True)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("name", "wanted", "strip", "left"),
    [
        ("drafter", "drafter", (), ("", "")),
        ("drafter.fc.weight", "drafter", (), ("fc.weight", "")),
        ("state", "state.model", (), ("", "model")),
        ("model.module.drafter.fc", "model.drafter", ("module.",), ("fc", "")),
        ("module", "drafter", ("module.",), ("", "drafter")),
        ("_orig_mod.module.drafter", "drafter", ("module.", "_orig_mod."), ("", "")),
        ("module.x", "module.x", ("module.",), ("", "")),
        ("a.b", "a.b", (), ("", "")),
        ("module_list.0", "list", ("module.",), None),
        ("drafters", "drafter", (), None),
        ("optimizer.drafter", "drafter", ("module.",), None),
    ],
)
def test_a_name_and_what_is_wanted_are_walked_together(
    name: str, wanted: str, strip: tuple[str, ...], left: tuple[str, str] | None
) -> None:
    assert checkpoint_keys.meet(name, wanted, strip) == left


def test_nested_weights_and_a_nested_step_come_with_the_small_things_on_their_way(tmp_path: Path) -> None:
    import torch

    saved = {
        "state": {
            "model": {"drafter": tensors(), "target": tensors(before="t.")},
            "optimizer": {0: {"exp_avg": torch.ones(9)}},
            "config": {"block_size": 8},
        },
        "trainer": {"global_step": 7, "rng": torch.get_rng_state()},
    }
    path = save(tmp_path / "c.pt", saved)
    found = take(path, ["state.model.drafter"], step="trainer.global_step")
    assert list(found) == ["state", "trainer"]
    assert list(found["state"]) == ["model", "config"]
    assert list(found["state"]["model"]) == ["drafter"]
    assert torch.equal(found["state"]["model"]["drafter"]["fc.weight"], tensors()["fc.weight"])
    assert found["trainer"] == {"global_step": 7}
    plan = stream.plan(path, ["state.model.drafter"], step="trainer.global_step")
    assert plan["kept"] == ["state.model.drafter", "state.config", "trainer.global_step"]
    assert plan["dropped"] == ["state.model.target", "state.optimizer", "trainer (1 others)"]


@pytest.mark.parametrize(
    "before", ["drafter.", "module.drafter.", "_orig_mod.drafter.", "module._orig_mod.drafter."]
)
def test_of_a_flat_dictionary_of_the_whole_model_the_drafters_part_comes(tmp_path: Path, before: str) -> None:
    saved = {"model": {**tensors(before=before), **tensors(before="module.target.")}, "step": 3}
    found = take(save(tmp_path / "c.pt", saved), ["model.drafter"])
    assert list(found["model"]) == [before + name for name in WEIGHTS]
    assert found["step"] == 3


def test_a_declared_prefix_is_looked_through_and_a_name_as_it_stands_wins(tmp_path: Path) -> None:
    saved = {"net.student": tensors(scale=2.0), "student": tensors()}
    path = save(tmp_path / "c.pt", saved)
    assert list(take(path, ["student"], strip=["net."])) == ["student"]
    del saved["student"]
    path = save(tmp_path / "d.pt", saved)
    assert list(take(path, ["student"], strip=["net."])) == ["net.student"]
    missing = stream.plan(path, ["student"])
    assert (missing["code"], missing["keys"]) == ("missing-key", ["net.student"])


def test_what_is_missing_is_told_with_what_there_is_at_the_end_of_the_way(tmp_path: Path) -> None:
    path = save(tmp_path / "c.pt", {"state": {"model": {"drafter": tensors()}}})
    reply = stream.plan(path, ["state.model.draft"])
    assert reply["code"] == "missing-key"
    assert reply["reason"] == "no key state.model.draft; in state.model there are: drafter"


@pytest.mark.parametrize(
    ("before", "keys", "strip"),
    [
        ("", ["model"], []),
        ("module.net.", ["model"], ["net."]),
        ("_orig_mod.drafter.", ["model.drafter"], []),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_the_bundled_harness_finds_bare_weights_and_the_step_and_no_byte_comes_twice(
    tmp_path: Path, before: str, keys: list[str], strip: list[str], nested: bool
) -> None:
    import torch

    saved: dict[str, Any] = {"model": tensors(before=before), "it": {"n": 5}}
    if nested:
        saved = {"state": {"model": saved["model"]}, "it": saved["it"]}
        keys = ["state." + key for key in keys]
    if not nested and keys == ["model"] and not strip:
        saved["mine"], keys = (
            saved.pop("model"),
            ["mine"],
        )  # `model` at the top is where the harness looks anyway
    path = save(tmp_path / "c.pt", saved)
    more: dict[str, Any] = {"step": "it.n", "strip": strip}
    found = take(path, keys, harness=True, **more)
    assert list(found["draft_state_dict"]) == list(WEIGHTS)
    assert torch.equal(found["draft_state_dict"]["fc.weight"], tensors()["fc.weight"])
    assert found["step"] == 5
    plain = stream.plan(path, keys, **more)
    both = stream.plan(path, keys, harness=True, **more)
    assert both["wanted_bytes"] == plain["wanted_bytes"]
    assert both["size"] - plain["size"] < 1000


def test_a_layout_that_the_harness_knows_is_left_as_it_is(tmp_path: Path) -> None:
    path = save(tmp_path / "c.pt", {"drafter": tensors(before="module."), "step": 3})
    assert list(take(path, ["drafter"], harness=True)) == ["drafter", "step"]


def test_two_weights_of_one_bare_name_are_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "c.pt", {"mine": {**tensors(), **tensors(before="net.")}})
    reply = stream.plan(path, ["mine"], harness=True, strip=["net."])
    assert reply["code"] == "layout"
    assert "two tensors below mine are fc.weight" in reply["reason"]


def test_the_step_inside_and_the_bytes_of_what_is_named_are_told(tmp_path: Path) -> None:
    import torch

    saved = {"model": tensors(before="module.drafter."), "trainer": {"n": torch.tensor(41)}, "step": 1}
    path = save(tmp_path / "c.pt", saved)
    (told,) = checkpoint_reader.serve(
        {"op": "summaries", "paths": [path], "names": ["model.drafter", "ema"], "step": "trainer.n"}
    )["summaries"]
    assert (told["step"], told["named"]) == (41, {"model.drafter": 48, "ema": None})
    assert checkpoint_reader.serve({"op": "inspect", "path": path})["step"] == 1
    assert checkpoint_reader.serve({"op": "inspect", "path": path, "step": "trainer.m"})["step"] is None


def test_a_dictionary_that_is_its_own_part_many_times_over_is_walked_once(tmp_path: Path) -> None:
    inner: dict[str, Any] = {}
    for _ in range(12):
        inner = {str(number): inner for number in range(40)}
    path = save(tmp_path / "c.pt", {"mine": {**tensors(), "bomb": inner}})
    assert stream.plan(path, ["mine"], harness=True)["code"] is None


def test_a_list_that_takes_too_long_is_cut_after_its_first(tmp_path: Path) -> None:
    paths = [save(tmp_path / f"{number}.pt", {"drafter": tensors(), "step": number}) for number in (1, 2, 3)]
    asked = {"op": "summaries", "paths": paths}
    assert [one["step"] for one in checkpoint_reader.serve(asked)["summaries"]] == [1, 2, 3]
    assert [one["step"] for one in checkpoint_reader.serve(asked | {"seconds": 0.0})["summaries"]] == [1]


def test_the_bundled_harness_reads_what_was_taken_out_of_a_foreign_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from hostkit.checkpoints.fitting import expected
    from tests.unit.checkpoints.test_fitting import CONFIG, FLAT

    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "remote_payloads"))
    from dflash.drafter import loading

    named = {
        f"_orig_mod.module.student.net.{name}": torch.randn(shape).to(torch.bfloat16)
        for name, shape in expected(FLAT).items()
    }
    config = CONFIG | {"vocab_size": 300, "num_target_layers": 6, "rms_norm_eps": 1e-6, "rope_theta": 1e6}
    whole = named | tensors(before="_orig_mod.target.")
    saved = {"state": {"model": whole}, "config": config, "loop": {"n": 7}}
    path = save(tmp_path / "c.pt", saved)
    found = take(path, ["state.model.student"], step="loop.n", strip=["net."], harness=True)
    assert sorted(found["draft_state_dict"]) == sorted(expected(FLAT))
    (tmp_path / "staged.pt").write_bytes(Path(path + ".out").read_bytes())
    read, weights, about = loading.read_drafter(tmp_path / "staged.pt")
    loading.check_tensors(weights, loading.expected_shapes(read), "here")
    assert about.step == 7
