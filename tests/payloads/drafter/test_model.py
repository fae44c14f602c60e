"""Whatever a drafter's config may say, the payload computes what is written down: loops in double precision agree."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from tests.payloads.plain_drafter import PlainDrafter, best, chain, tree

FULL, SLIDING = "full_attention", "sliding_attention"
LAYERS = 6  # of the target


@pytest.fixture(scope="module")
def plugin() -> ModuleType:
    """The payload as check_parity.py sees it."""
    spec = importlib.util.spec_from_file_location(
        "parity_plugin", Path(__file__).parents[1] / "parity_plugin.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@st.composite
def shapes(draw: st.DrawFn) -> dict[str, Any]:
    """What may vary between two drafters, and where their config.json may keep it."""
    groups, ratio = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    layers = draw(st.integers(1, 3))
    vocab = draw(st.integers(3, 30))
    return {
        "hidden_size": draw(st.sampled_from([8, 12, 20])),
        "intermediate_size": draw(st.sampled_from([4, 17, 40])),
        "num_hidden_layers": layers,
        "num_attention_heads": groups * ratio,
        "num_key_value_heads": groups,
        "head_dim": draw(st.sampled_from([2, 4, 6, 10])),
        "vocab_size": vocab,
        "block_size": draw(st.integers(2, 9)),
        "mask_token_id": draw(st.one_of(st.just(0), st.just(vocab - 1), st.integers(0, vocab - 1))),
        "target_layer_ids": draw(st.permutations(range(LAYERS - 1)))[: draw(st.integers(1, 4))],
        "rope_theta": draw(st.sampled_from([100.0, 1e4, 5e4, 1e6, 1e7])),
        "rms_norm_eps": draw(st.sampled_from([1e-6, 1e-5, 1e-2])),
        "layer_types": draw(st.lists(st.sampled_from([FULL, SLIDING]), min_size=layers, max_size=layers)),
        "sliding_window": draw(st.integers(1, 14)),
        "tied": draw(st.booleans()),
        "nested": draw(st.sets(st.sampled_from(["block_size", "target_layer_ids", "mask_token_id"]))),
        "theta_in": draw(st.sampled_from(["top", "rope_parameters", "both"])),
        "anchor": draw(st.one_of(st.integers(0, 3), st.integers(4, 16))),
        "seed": draw(st.integers(0, 9999)),
    }


def a_target(shape: dict[str, Any], kind: type = Qwen3Config) -> Any:
    config = kind(
        vocab_size=shape["vocab_size"],
        hidden_size=shape["hidden_size"],
        intermediate_size=16,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=4,
        tie_word_embeddings=shape["tied"],
        initializer_range=0.4,
        bos_token_id=None,
        eos_token_id=None,
        max_position_embeddings=512,
    )
    torch.manual_seed(shape["seed"])
    return AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)


def a_drafter(
    shape: dict[str, Any], folder: Path, dtype: torch.dtype = torch.float32
) -> dict[str, np.ndarray]:
    """Write a drafter folder as others write it; gives its tensors."""
    hidden, wide = shape["hidden_size"], shape["num_attention_heads"] * shape["head_dim"]
    narrow, inner = shape["num_key_value_heads"] * shape["head_dim"], shape["intermediate_size"]
    sizes = {
        "fc": (hidden, len(shape["target_layer_ids"]) * hidden),
        "hidden_norm": (hidden,),
        "norm": (hidden,),
    }
    for i in range(shape["num_hidden_layers"]):
        inside = {
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
            "self_attn.q_proj": (wide, hidden),
            "self_attn.k_proj": (narrow, hidden),
            "self_attn.v_proj": (narrow, hidden),
            "self_attn.o_proj": (hidden, wide),
            "self_attn.q_norm": (shape["head_dim"],),
            "self_attn.k_norm": (shape["head_dim"],),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }
        sizes |= {f"layers.{i}.{name}": size for name, size in inside.items()}
    drawn = torch.Generator().manual_seed(shape["seed"] + 1)
    tensors = {
        f"{name}.weight": (torch.randn(size, generator=drawn) * 0.4 + (len(size) == 1)).to(dtype)
        for name, size in sizes.items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, str(folder / "model.safetensors"))
    apart = {"block_size", "target_layer_ids", "mask_token_id", "rope_theta"}
    own = {"tied", "nested", "theta_in", "anchor", "seed"}
    document: dict[str, Any] = {k: v for k, v in shape.items() if k not in apart | own}
    document |= {"num_target_layers": LAYERS, "model_type": "qwen3", "tie_word_embeddings": False}
    document["use_sliding_window"] = SLIDING in shape["layer_types"]
    nested = {name: shape[name] for name in shape["nested"]}
    document |= {name: shape[name] for name in apart - {"rope_theta"} - shape["nested"]}
    document["dflash_config"] = nested
    if shape["theta_in"] != "rope_parameters":
        document["rope_theta"] = shape["rope_theta"]
    if shape["theta_in"] != "top":
        document["rope_parameters"] = {"rope_type": "default", "rope_theta": shape["rope_theta"]}
    (folder / "config.json").write_text(json.dumps(document), encoding="utf-8")
    return {name: tensor.float().numpy() for name, tensor in tensors.items()}


def plain(shape: dict[str, Any], tensors: dict[str, np.ndarray], target: Any) -> PlainDrafter:
    embedding = target.get_input_embeddings().weight.numpy()
    head = target.get_output_embeddings().weight.numpy()
    return PlainDrafter(shape, tensors, embedding, head)


def taps_of(target: Any, ids: list[int], taps: list[int]) -> tuple[torch.Tensor, list[int]]:
    """Features from the model's own list of hidden states, and its greedy token after each position."""
    out = target(torch.tensor([ids]), output_hidden_states=True)
    rows = torch.cat([out.hidden_states[tap + 1][0] for tap in taps], dim=-1)
    return rows, out.logits[0].argmax(-1).tolist()


EDGE = {
    "hidden_size": 8, "intermediate_size": 4, "num_hidden_layers": 1, "num_attention_heads": 3,
    "num_key_value_heads": 1, "head_dim": 6, "vocab_size": 3, "block_size": 32, "mask_token_id": 2,
    "target_layer_ids": [4, 0], "rope_theta": 100.0, "rms_norm_eps": 1e-2, "layer_types": [SLIDING],
    "sliding_window": 1, "tied": True, "nested": {"block_size"}, "theta_in": "rope_parameters", "anchor": 0,
    "seed": 1,
}  # fmt: skip


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shapes())
@example(EDGE)
@example({**EDGE, "anchor": 1, "layer_types": [FULL], "nested": set(), "theta_in": "top", "block_size": 2})
def test_logits_and_features_are_those_of_the_written_definition(
    plugin: ModuleType, tmp_path: Path, shape: dict[str, Any]
) -> None:
    target = a_target(shape)
    tensors = a_drafter(shape, tmp_path / "drafter")
    drafter = plugin.load_drafter(tmp_path / "drafter")
    ids = np.random.default_rng(shape["seed"]).integers(0, shape["vocab_size"], 20).tolist()
    features, _ = taps_of(target, ids, shape["target_layer_ids"])
    assert torch.allclose(plugin.features(target, ids, drafter), features, atol=1e-5)
    anchor = shape["anchor"]
    wanted = plain(shape, tensors, target).logits(features.numpy(), ids[anchor], anchor, shape["block_size"])
    got = plugin.draft_logits(drafter, target, ids, features, anchor).numpy()
    assert got.shape == (shape["block_size"] - 1, shape["vocab_size"])
    assert np.abs(got - wanted).max() < 2e-5 * max(1.0, np.abs(wanted).max())


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shapes(), st.integers(1, 5), st.integers(1, 9), st.integers(1, 12))
def test_rounds_and_text_are_those_of_loops_without_any_cache(
    plugin: ModuleType, tmp_path: Path, shape: dict[str, Any], length: int, limit: int, budget: int
) -> None:
    shape = {**shape, "vocab_size": 4, "mask_token_id": shape["mask_token_id"] % 4}
    target = a_target(shape)
    one = plain(shape, a_drafter(shape, tmp_path / "drafter"), target)
    drafter = plugin.load_drafter(tmp_path / "drafter")
    prompt = np.random.default_rng(shape["seed"]).integers(0, 4, length).tolist()

    def read(ids: list[int]) -> tuple[np.ndarray, list[int]]:
        features, greedy = taps_of(target, ids, shape["target_layer_ids"])
        return features.numpy(), greedy

    for stop in ((), (3,)):
        done = plugin.rounds(drafter, target, prompt, limit, stop_token_ids=list(stop))
        wanted = chain(one, read, prompt, limit, shape["block_size"], stop)
        assert (done.acceptance_lengths, done.output_ids) == wanted
    done = plugin.tree_rounds(drafter, target, prompt, limit, budget)
    wanted = tree(one, read, prompt, limit, shape["block_size"], budget)
    assert (done.acceptance_lengths, done.output_ids) == wanted


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 8),
    st.integers(2, 12),
    st.integers(0, 60),
    st.integers(0, 999),
    st.sampled_from([0.1, 1, 20]),
)
def test_trees_are_the_most_probable_prefixes_of_any_logits(
    plugin: ModuleType, depth: int, vocab: int, budget: int, seed: int, spread: float
) -> None:
    logits = torch.randn(depth, vocab, generator=torch.Generator().manual_seed(seed)) * spread
    made = plugin.tree(logits, budget)
    paths = [list(path) for path in made.prefixes()]
    wanted = best(logits.numpy(), budget)
    room = sum(vocab**d for d in range(1, depth + 1))
    assert len(paths) == min(budget, room)
    if paths != wanted:  # two prefixes as probable as fp32 can tell
        masses = [[mass_of(logits, p) for p in found] for found in (paths, wanted)]
        assert np.allclose(*masses, atol=1e-5, rtol=0)


def mass_of(logits: torch.Tensor, path: list[int]) -> float:
    shares = logits.double().log_softmax(-1)
    return sum(float(shares[d, token]) for d, token in enumerate(path))


@pytest.mark.parametrize("kind", [Qwen2Config, LlamaConfig])
def test_targets_of_other_families_have_the_same_features(
    plugin: ModuleType, tmp_path: Path, kind: type
) -> None:
    shape = {**EDGE, "hidden_size": 8, "vocab_size": 9, "mask_token_id": 8, "target_layer_ids": [3, 1]}
    target = a_target(shape, kind)
    a_drafter(shape, tmp_path / "drafter")
    drafter = plugin.load_drafter(tmp_path / "drafter")
    ids = [1, 5, 2, 7, 7, 0]
    assert torch.equal(plugin.features(target, ids, drafter), taps_of(target, ids, [3, 1])[0])


def test_a_drafter_in_bf16_stays_near_the_definition(tmp_path: Path) -> None:
    from dflash.drafter.loading import load_drafter

    shape = {
        **EDGE,
        "layer_types": [FULL],
        "vocab_size": 20,
        "mask_token_id": 19,
        "block_size": 8,
        "rope_theta": 1e6,
    }
    target = a_target(shape)
    one = plain(shape, a_drafter(shape, tmp_path / "drafter", torch.bfloat16), target)
    drafter = load_drafter(tmp_path / "drafter", torch.bfloat16).drafter
    features = taps_of(target, list(range(12)), shape["target_layer_ids"])[0].bfloat16()
    wanted = one.logits(features.float().numpy(), 5, 12, 8)
    ids = drafter.block_ids(torch.tensor([[5]]))
    embedded = target.get_input_embeddings()(ids).bfloat16()
    with torch.no_grad():
        hidden = drafter.fill_blocks(drafter.read_context(features[None]), torch.tensor([[12]]), embedded)
    got = (hidden[0, 0].float() @ target.get_output_embeddings().weight.T).numpy()
    assert np.abs(got - wanted).max() < 0.05 * np.abs(wanted).max()
