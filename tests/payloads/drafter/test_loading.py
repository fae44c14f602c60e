"""Drafters are loaded exactly or not at all, from each layout; an export is bit-equal."""

from __future__ import annotations

import argparse
import collections
import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from dflash.drafter import checkpoint
from dflash.drafter.config import DraftConfig
from dflash.drafter.loading import export, load_drafter, read_drafter
from dflash.drafter.locate import config_without_torch
from dflash.drafter.model import Drafter
from dflash.drafter.plain_pickle import plain_values
from dflash.errors import Refused
from dflash.evaluation.compatibility import misfits


@pytest.fixture
def tensors(small_config: DraftConfig) -> dict[str, torch.Tensor]:
    fresh = Drafter(small_config).reset_parameters(torch.Generator().manual_seed(1))
    return {name: p.detach().clone() for name, p in fresh.named_parameters()}


def save_pt(folder: Path, config: DraftConfig, content: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    checkpoint.write(folder / "checkpoint.pt", {"config": config.document(), **content})
    return folder / "checkpoint.pt"


def test_five_layers_have_the_58_published_tensors(small_config: DraftConfig) -> None:
    config = DraftConfig.parse({**small_config.document(), "num_hidden_layers": 5, "layer_types": None})
    names = dict(Drafter(config).named_parameters())
    assert len(names) == 58
    assert {"fc.weight", "hidden_norm.weight", "norm.weight", "layers.4.self_attn.k_norm.weight"} <= set(
        names
    )


def test_an_export_loads_bit_equal_in_either_dtype(
    tmp_path: Path, small_config: DraftConfig, tensors: Any
) -> None:
    for dtype in (torch.bfloat16, torch.float32):
        folder = tmp_path / str(dtype)
        saved = {name: t.to(dtype) for name, t in tensors.items()}
        export(small_config, saved, folder)
        config, again, loaded = read_drafter(folder)
        assert config == small_config
        assert loaded.format == "published"
        assert again.keys() == saved.keys()
        assert all(torch.equal(again[n], saved[n]) and again[n].dtype == dtype for n in saved)


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "draft_model.", "module._orig_mod.model."])
@pytest.mark.parametrize("key", ["draft_state_dict", "model_state_dict", "state_dict", "model", "drafter"])
def test_prefixes_and_containers_of_trainers_are_seen_through(
    tmp_path: Path, small_config: DraftConfig, tensors: Any, prefix: str, key: str
) -> None:
    file = save_pt(tmp_path, small_config, {"step": 7, key: {prefix + n: t for n, t in tensors.items()}})
    loaded = load_drafter(file)
    assert loaded.step == 7
    assert torch.equal(loaded.drafter.fc.weight, tensors["fc.weight"])


def test_a_bare_state_dict_takes_the_config_beside_it(
    tmp_path: Path, small_config: DraftConfig, tensors: Any
) -> None:
    torch.save(tensors, tmp_path / "weights.pt")
    with pytest.raises(Refused, match="no config"):
        load_drafter(tmp_path / "weights.pt")
    (tmp_path / "config.json").write_text(json.dumps(small_config.document()))
    assert load_drafter(tmp_path / "weights.pt").config == small_config
    for zipped in (True, False):
        torch.save(tensors, tmp_path / "weights.pt", _use_new_zipfile_serialization=zipped)
        assert config_without_torch(tmp_path / "weights.pt") == small_config


def drop(t: dict[str, Any]) -> None:
    del t["layers.1.mlp.up_proj.weight"]


def extra(t: dict[str, Any]) -> None:
    t["layers.9.mlp.up_proj.weight"] = torch.zeros(2, 2)


def reshape(t: dict[str, Any]) -> None:
    t["fc.weight"] = t["fc.weight"][:, :-1].contiguous()


def poison(t: dict[str, Any]) -> None:
    t["norm.weight"][3] = float("nan")


def halve(t: dict[str, Any]) -> None:
    t["norm.weight"] = t["norm.weight"].half()


def fuse(t: dict[str, Any]) -> None:
    t["layers.0.self_attn.qkv_proj.weight"] = torch.zeros(2, 2)


def laguna(t: dict[str, Any]) -> None:
    t["aux_hidden_norms.0.weight"] = torch.zeros(2)


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (drop, "1 missing: layers.1.mlp.up_proj.weight"),
        (extra, "1 not of a drafter: layers.9"),
        (reshape, r"fc.weight is \[32, 63\], the config says \[32, 64\]"),
        (poison, "norm.weight has values that are not finite"),
        (halve, "norm.weight is float16"),
        (fuse, "fused qkv_proj"),
        (laguna, "Laguna"),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    tmp_path: Path, small_config: DraftConfig, tensors: Any, spoil: Any, named: str
) -> None:
    spoil(tensors)
    with pytest.raises(Refused, match=named):
        load_drafter(save_pt(tmp_path, small_config, {"draft_state_dict": tensors}))


def test_float16_is_refused_as_a_dtype_to_run_in(drafter_folder: Path) -> None:
    with pytest.raises(Refused, match="float16"):
        load_drafter(drafter_folder, torch.float16)


def test_a_pickle_with_code_is_refused_and_not_run(tmp_path: Path, small_config: DraftConfig) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return Path.touch, (Path(tmp_path / "was-run"),)  # type: ignore[return-value]

    torch.save({"draft_state_dict": {}, "args": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(Refused, match="more than plain data"):
        load_drafter(tmp_path / "evil.pt")
    assert isinstance(plain_values(tmp_path / "evil.pt"), dict)
    assert not (tmp_path / "was-run").exists()


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    ("value", "named"),
    [
        (argparse.Namespace(lr=1), "argparse.Namespace"),
        (Path("/x"), "PosixPath"),
        (collections.defaultdict(list), "collections.defaultdict"),
        (torch.nn.Linear(2, 2), "torch.nn.modules.linear.Linear"),
    ],
)
def test_objects_beside_the_weights_are_refused_by_their_class(
    tmp_path: Path, value: Any, named: str, zipped: bool
) -> None:
    torch.save({"extra": value}, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(Refused, match=rf"more than plain data \(.*{named}\)") as refused:
        load_drafter(tmp_path / "x.pt")
    assert "weights_only" not in str(refused.value), (
        "torch's advice to load without its guard is not passed on"
    )


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("zipped", [True, False])
def test_whatever_a_damaged_file_provokes_is_one_refusal(tmp_path: Path, tensors: Any, zipped: bool) -> None:
    """Flipped bytes, cuts, garbage; and the standard library's reader is as calm."""
    file = tmp_path / "damaged.pt"
    torch.save({"step": 3, "draft_state_dict": tensors}, file, _use_new_zipfile_serialization=zipped)
    whole, drawn, refused = file.read_bytes(), random.Random(7), 0
    for _ in range(150):
        content = bytearray(whole[: drawn.choice([len(whole), drawn.randrange(len(whole))])])
        for _ in range(drawn.randint(1, 4)):
            if content:
                content[drawn.randrange(min(len(content), 3000))] = drawn.randrange(256)
        file.write_bytes(content)
        for read in (checkpoint.read, plain_values):
            try:
                read(file)
            except Refused as error:
                refused += 1
                assert str(file) in str(error)
    assert refused > 150


@pytest.mark.parametrize("content", [b"", b"hello world\n", b'{"a": 1}', b"PK\x03\x04"])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.pt").write_bytes(content)
    with pytest.raises(Refused, match=r"x\.pt: not a"):
        load_drafter(tmp_path / "x.pt")


def test_two_tensors_of_one_name_are_refused(tmp_path: Path, small_config: DraftConfig, tensors: Any) -> None:
    doubled = {**tensors, "module.fc.weight": tensors["fc.weight"] + 1}
    with pytest.raises(Refused, match=r"two tensors are called fc\.weight"):
        load_drafter(save_pt(tmp_path, small_config, {"draft_state_dict": doubled}))


def test_a_cut_checkpoint_is_named_as_not_whole(
    tmp_path: Path, small_config: DraftConfig, tensors: Any
) -> None:
    file = save_pt(tmp_path, small_config, {"draft_state_dict": tensors})
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(Refused, match="not a whole checkpoint"):
        load_drafter(file)


def test_a_cut_safetensors_file_is_named_as_not_whole(
    tmp_path: Path, small_config: DraftConfig, tensors: Any
) -> None:
    export(small_config, tensors, tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(Refused, match="not a whole safetensors file"):
        load_drafter(tmp_path)


def test_nothing_but_plain_data_is_saved(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="PosixPath is not plain data"):
        checkpoint.write(tmp_path / "x.pt", {"args": {"out": Path("/x")}})
    assert list(tmp_path.iterdir()) == []


def test_a_config_is_read_from_a_checkpoint_without_torch(
    tmp_path: Path, small_config: DraftConfig, tensors: Any
) -> None:
    file = save_pt(tmp_path, small_config, {"step": 3, "draft_state_dict": tensors})
    saved = plain_values(file)
    assert saved["step"] == 3
    assert DraftConfig.parse(saved["config"]) == small_config


def test_the_recorded_fixture_keeps_its_tensors(drafter_folder: Path, tmp_path: Path) -> None:
    config, tensors, _ = read_drafter(drafter_folder)
    export(config, tensors, tmp_path)
    first, second = load_file(drafter_folder / "model.safetensors"), load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(first[n], second[n]) for n in first)


def speculators(small_config: DraftConfig, **change: Any) -> dict[str, Any]:
    layer = {k: v for k, v in small_config.document().items() if k not in ("block_size", "dflash_config")}
    return {
        "speculators_model_type": "dflash",
        "transformer_layer_config": layer,
        "aux_hidden_state_layer_ids": [tap + 1 for tap in small_config.target_layer_ids],
        "block_size": small_config.block_size,
        "mask_token_id": small_config.mask_token_id,
        **change,
    }


def test_a_speculators_checkpoint_has_its_taps_lowered_by_one(
    tmp_path: Path, small_config: DraftConfig, tensors: Any
) -> None:
    borrowed = {"embed_tokens.weight": torch.zeros(40, 32), "lm_head.weight": torch.zeros(40, 32)}
    save_file({**tensors, **borrowed, "t2d": torch.zeros(40)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(speculators(small_config)))
    loaded = load_drafter(tmp_path)
    assert loaded.format == "speculators (untested)"
    assert loaded.config.target_layer_ids == small_config.target_layer_ids
    export(loaded.config, tensors, tmp_path / "out")
    assert DraftConfig.read(tmp_path / "out") == loaded.config == config_without_torch(tmp_path)
    assert torch.equal(loaded.drafter.fc.weight, tensors["fc.weight"])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"sample_from_anchor": True}, "DSpark"),
        ({"aux_hidden_state_layer_ids": None}, "aux_hidden_state_layer_ids is missing"),
        ({"aux_hidden_state_layer_ids": ["1"]}, "no list of layers"),
        ({"transformer_layer_config": [1]}, "transformer_layer_config is not an object"),
        ({"draft_vocab_size": 20}, "vocabulary of its own"),
        ({"speculators_model_type": "eagle3"}, "eagle3"),
        ({"transformer_layer_config": {"layer_types": ["sliding_attention"]}}, "window means something else"),
    ],
)
def test_a_speculators_drafter_of_another_kind_is_refused(
    tmp_path: Path, small_config: DraftConfig, tensors: Any, change: dict[str, Any], named: str
) -> None:
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(speculators(small_config, **change)))
    with pytest.raises(Refused, match=named):
        load_drafter(tmp_path)


def test_a_depth_that_a_speculators_checkpoint_does_not_state_is_no_mismatch(
    tmp_path: Path, small_config: DraftConfig, tensors: Any
) -> None:
    document = speculators(small_config)
    target = {"hidden_size": 32, "vocab_size": 40, "num_hidden_layers": 30, "intermediate_size": 1}
    for stated, wrong in ((5, 1), (None, 0)):
        document["transformer_layer_config"]["num_target_layers"] = stated
        save_file(tensors, tmp_path / "model.safetensors")
        (tmp_path / "config.json").write_text(json.dumps(document))
        config = load_drafter(tmp_path).config
        export(config, tensors, tmp_path / f"out-{stated}")
        for loaded in (config, DraftConfig.read(tmp_path / f"out-{stated}")):
            assert len(misfits(loaded, target)) == wrong


def test_a_specforge_folder_gives_step_and_weights(
    tmp_path: Path, small_config: DraftConfig, tensors: Any
) -> None:
    folder = tmp_path / "run-step600"
    folder.mkdir()
    torch.save({"draft_state_dict": tensors, "global_step": 600, "epoch": 1}, folder / "training_state.pt")
    (tmp_path / "config.json").write_text(json.dumps(small_config.document()))
    loaded = load_drafter(folder)
    assert loaded.step == 600
    assert loaded.config == small_config
    assert config_without_torch(folder) == small_config


def test_the_export_command_writes_what_the_checkpoint_holds(
    tmp_path: Path, small_config: DraftConfig, tensors: Any, capsys: Any
) -> None:
    import export_drafter

    file = save_pt(tmp_path / "in", small_config, {"draft_state_dict": tensors})
    argv = ["--checkpoint", str(file), "--out", str(tmp_path / "out")]
    assert export_drafter.main(argv) == 0
    again = load_file(tmp_path / "out" / "model.safetensors")
    assert all(torch.equal(again[n], tensors[n]) for n in tensors)
    assert DraftConfig.read(tmp_path / "out") == small_config
    assert export_drafter.main(argv) == 1
    assert "is not empty" in capsys.readouterr().out
