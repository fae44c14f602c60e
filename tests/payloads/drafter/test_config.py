"""A drafter's config is read by rule, and what cannot be stood for is refused by its name."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from dflash.drafter.config import DraftConfig, spread_taps
from dflash.errors import Refused


@pytest.fixture
def published(drafter_folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((drafter_folder / "config.json").read_text())
    return document


def test_a_published_config_is_read(published: dict[str, Any]) -> None:
    config = DraftConfig.parse(published)
    assert (config.block_size, config.mask_token_id, config.target_layer_ids) == (8, 257, (0, 2, 3))
    assert config.rope_theta == 1e6


def test_what_is_written_reads_back_as_the_same(small_config: DraftConfig) -> None:
    assert DraftConfig.parse(json.loads(json.dumps(small_config.document()))) == small_config


def test_nested_values_win_over_the_top_level(published: dict[str, Any]) -> None:
    published["dflash_config"]["block_size"] = 4
    published["target_layer_ids"] = [1, 2]
    config = DraftConfig.parse(published)
    assert config.block_size == 4
    assert config.target_layer_ids == (0, 2, 3)


def test_the_block_size_may_stand_in_the_nested_config_alone(published: dict[str, Any]) -> None:
    published["dflash_config"]["block_size"] = published.pop("block_size")
    assert DraftConfig.parse(published).block_size == 8


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"dflash_config.target_layer_ids": None}, "target_layer_ids is missing"),
        ({"dflash_config.mask_token_id": None}, "mask_token_id is missing"),
        ({"block_size": None}, "block_size is missing"),
        ({"rope_theta": None}, "rope_theta is missing"),
        ({"num_target_layers": None}, "num_target_layers is missing"),
        ({"dflash_config.mask_token_id": 260}, "mask_token_id 260 is outside"),
        ({"dflash_config.target_layer_ids": [0, 5]}, "tap 5 is the target's last layer"),
        ({"dflash_config.target_layer_ids": [0, 6]}, "tap 6 does not exist"),
        ({"dflash_config.target_layer_ids": [2, 2]}, "names a layer twice"),
        ({"dflash_config.target_layer_ids": "auto"}, "not a list of integers"),
        ({"block_size": 1}, "block_size 1 drafts nothing"),
        ({"dflash_config.conv_kernel_size": 3}, "DFlash2"),
        ({"dflash_config.selector_rank": 8}, "DFlash2"),
        ({"dflash_config.projector_type": "gate"}, "Domino"),
        ({"attention_sink_bias": True}, "sink bias"),
        ({"dflash_config.sample_from_anchor": True}, "DSpark"),
        ({"attention_bias": True}, "attention_bias"),
        ({"dtype": "float16"}, "float16"),
        ({"partial_rotary_factor": 0.25}, "partial_rotary_factor 0.25"),
        ({"rope_parameters": {"rope_theta": 1e7}}, "differ"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, "yarn"),
        ({"rope_parameters": {"mrope_section": [1, 2]}}, "mrope"),
        ({"layer_types": ["full_attention"]}, "1 entries for 2 layers"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "linear_attention"),
        ({"layer_types": ["sliding_attention"] * 2}, "use_sliding_window is false"),
        ({"num_key_value_heads": 3}, "multiple"),
        ({"num_key_value_heads": 0}, "num_key_value_heads is 0"),
        ({"head_dim": 7}, "head_dim 7 is odd"),
        ({"head_dim": None}, "head_dim is missing"),
        ({"hidden_size": "wide"}, "hidden_size is 'wide'"),
        ({"block_size": 7.5}, "block_size is 7.5"),
        ({"block_size": float("nan")}, "block_size is nan"),
        ({"vocab_size": float("inf")}, "vocab_size is inf"),
        ({"block_size": True}, "block_size is True"),
        ({"dflash_config.mask_token_id": "257"}, "mask_token_id is '257'"),
        ({"dflash_config.mask_token_id": -1}, "mask_token_id -1 is outside"),
        ({"dflash_config.target_layer_ids": [0, -1]}, "tap -1 does not exist"),
        ({"dflash_config.target_layer_ids": []}, "target_layer_ids is empty"),
        ({"dflash_config": [1]}, "dflash_config is .1., not an object"),
        ({"rope_parameters": "default"}, "rope_parameters is 'default'"),
        ({"rope_theta": float("inf")}, "rope_theta is inf"),
        ({"rope_theta": -1}, "rope_theta is -1"),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, "linear"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e6}}, "llama3"),
        ({"rope_scaling": {"mrope_section": [1, 2]}}, "mrope"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps is 'small'"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
        ({"layer_types": None, "use_sliding_window": True}, "which layers slide"),
        ({"layer_types": "full_attention"}, "not a list"),
        ({"layer_types": ["sliding_attention"] * 2, "use_sliding_window": True}, "without a sliding_window"),
        ({"torch_dtype": "float16"}, "float16"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"conv_kernel_size": 3}, "DFlash2"),
    ],
)
def test_a_config_that_cannot_be_right_is_refused_by_name(
    published: dict[str, Any], change: dict[str, Any], named: str
) -> None:
    document = copy.deepcopy(published)
    for path, value in change.items():
        *parents, last = path.split(".")
        place = document
        for parent in parents:
            place = place[parent]
        if value is None:
            del place[last]
        else:
            place[last] = value
    with pytest.raises(Refused, match=named):
        DraftConfig.parse(document)


def test_both_places_of_theta_are_written(small_config: DraftConfig) -> None:
    document = small_config.document()
    assert document["rope_theta"] == document["rope_parameters"]["rope_theta"] == 1e5


@pytest.mark.parametrize("depth", range(5, 97))
def test_default_taps_avoid_the_last_layers_and_never_repeat(depth: int) -> None:
    taps = spread_taps(depth, 2)
    assert taps[0] == 1
    assert taps[-1] == depth - 3


@pytest.mark.parametrize(
    "change", [{"rope_scaling": None}, {"rope_parameters": {"rope_type": None}}, {"selector_rank": 0}]
)
def test_a_key_that_says_nothing_is_no_reason_to_refuse(
    published: dict[str, Any], change: dict[str, Any]
) -> None:
    assert DraftConfig.parse({**published, **change}) == DraftConfig.parse(published)


@pytest.mark.parametrize("content", [b"[]", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_config_file_that_is_none_is_refused_by_its_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(Refused, match=r"config\.json: (not|cannot)"):
        DraftConfig.read(tmp_path)
