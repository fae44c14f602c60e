"""The config of a new drafter from its target's: what must match is taken, the rest has stated defaults."""

from __future__ import annotations

import argparse
from typing import Any

from dflash.drafter.config import FULL, SLIDING, DraftConfig, spread_taps
from dflash.errors import Refused

# Unused rows that published drafters of these vocabularies take as mask.
KNOWN_MASKS = {151936: 151669, 248320: 248070}


def new_config(args: argparse.Namespace, target_config: Any, tokenizer: Any) -> DraftConfig:
    """Build the config of a drafter for this target; heads and MLP default to the target's own shape."""
    text = target_config.get_text_config()
    depth = int(text.num_hidden_layers)
    taps = tuple(args.target_layer_ids or spread_taps(depth, args.taps or args.layers))
    sliding = args.sliding_layers or 0
    rope = getattr(text, "rope_parameters", None) or {}
    return DraftConfig(
        hidden_size=int(text.hidden_size),
        intermediate_size=args.intermediate or int(text.intermediate_size),
        num_hidden_layers=args.layers,
        num_attention_heads=args.heads or int(text.num_attention_heads),
        num_key_value_heads=args.kv_heads or int(text.num_key_value_heads),
        head_dim=args.head_dim
        or int(getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads),
        vocab_size=int(text.vocab_size),
        block_size=args.block_size,
        mask_token_id=mask_token(args.mask_token_id, int(text.vocab_size), tokenizer),
        target_layer_ids=taps,
        num_target_layers=depth,
        # Plain RoPE: a target's partial rotary factor or mrope is not a drafter's.
        rope_theta=float(
            args.rope_theta or rope.get("rope_theta") or getattr(text, "rope_theta", None) or 1e6
        ),
        rms_norm_eps=float(getattr(text, "rms_norm_eps", 1e-6)),
        layer_types=(SLIDING,) * sliding + (FULL,) * (args.layers - sliding),
        sliding_window=args.sliding_window if sliding else None,
        max_position_embeddings=int(getattr(text, "max_position_embeddings", 40960)),
    )


def mask_token(asked: int | None, vocab_size: int, tokenizer: Any) -> int:
    """The mask's id: as asked, the tokenizer's `<|MASK|>`, or that of a known vocabulary. Never pad or eos."""
    if asked is not None:
        return asked
    if tokenizer is not None:
        found = tokenizer.get_vocab().get("<|MASK|>")
        if found is not None:
            return int(found)
    if vocab_size in KNOWN_MASKS:
        return KNOWN_MASKS[vocab_size]
    raise Refused(
        "no mask token is known for this target",
        "--mask-token-id N: an existing row of its embedding that no text uses",
    )
