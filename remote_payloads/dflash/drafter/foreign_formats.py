"""Drafters saved by other trainers, brought into our terms by their key tables. UNTESTED against real files:
nobody here could fetch one; the tables are those of reference notes, and what does not fit is refused.

SpecForge: a folder `{run}-step{N}/` with `training_state.pt` (`draft_state_dict`, `global_step`), config.json
beside it or one folder up. speculators: nested `transformer_layer_config`, taps numbered one higher, and
copies of the target's embedding and head that are not the drafter's.

Standard library only, Python 3.8: the preflight reads their configs without torch.
"""

from __future__ import annotations

from typing import Any, Dict, Optional

from dflash.drafter.config import SLIDING
from dflash.errors import Refused

# Tensors of a speculators checkpoint that belong to the target or to a vocabulary map.
BORROWED = ("embed_tokens.weight", "lm_head.weight", "verifier_lm_head.weight", "verifier_norm.weight")
MAPS = ("t2d", "d2t")


def is_speculators(document: Dict[str, Any]) -> bool:
    """Whether a config.json is one of speculators."""
    return "speculators_model_type" in document or "transformer_layer_config" in document


def drafters_own(tensors: Dict[str, Any]) -> Dict[str, Any]:
    """The tensors of a speculators checkpoint that are the drafter's."""
    return {name: t for name, t in tensors.items() if name not in BORROWED and name not in MAPS}


def speculators_config(document: Dict[str, Any]) -> Dict[str, Any]:
    """The config of a speculators DFlash checkpoint in the published terms."""
    kind = document.get("speculators_model_type")
    if kind != "dflash":
        raise Refused(f"a speculators checkpoint of type {kind!r}, not dflash")
    if document.get("sample_from_anchor"):
        raise Refused("sample_from_anchor is true: a DSpark drafter, whose slot 0 predicts too")
    layer = document.get("transformer_layer_config") or {}
    if not isinstance(layer, dict):
        raise Refused("config: transformer_layer_config is not an object")
    if SLIDING in (layer.get("layer_types") or []) or document.get("sliding_window_non_causal"):
        raise Refused(
            "a speculators drafter with sliding layers: its window means something else",
            "theirs is `key >= anchor - W` for every slot, ours counts the query itself",
        )
    aux = document.get("aux_hidden_state_layer_ids")
    if not isinstance(aux, list) or not aux or not all(type(i) is int for i in aux):
        raise Refused(
            "config: aux_hidden_state_layer_ids is missing or no list of layers", "taps are never guessed"
        )
    draft_vocab = document.get("draft_vocab_size", layer.get("vocab_size"))
    if draft_vocab != layer.get("vocab_size"):
        raise Refused(
            f"a drafter with a vocabulary of its own ({draft_vocab} of {layer.get('vocab_size')} tokens)",
            "only drafters that borrow the target's whole head can be measured here",
        )
    taps = [i - 1 for i in aux]
    return {
        **layer,
        "block_size": document.get("block_size"),
        # The target's depth is not stated; the taps bound it from below, which is all that is checked.
        "num_target_layers": layer.get("num_target_layers") or max(taps) + 3,
        "depth_guessed": not layer.get("num_target_layers"),
        "dflash_config": {
            "target_layer_ids": taps,
            "mask_token_id": document.get("mask_token_id"),
        },
    }


def step_of(saved: Dict[str, Any]) -> Optional[int]:
    """The training step that a checkpoint states, under any of its usual names."""
    for name in ("step", "global_step", "global_steps", "iteration"):
        value = saved.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None
