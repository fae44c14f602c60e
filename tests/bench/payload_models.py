"""Random targets and drafters of a stated size for the payloads' benches: speed needs no training."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "remote_payloads"))

import torch
from dflash.drafter.config import DraftConfig, spread_taps
from dflash.drafter.model import Drafter
from dflash.target.model import Target


def heads(hidden: int) -> dict[str, int]:
    """Heads of 64; below 128 the practice model's four of a quarter each. Two query heads to a key head."""
    wide = 64 if hidden >= 128 else hidden // 4
    return {
        "num_attention_heads": hidden // wide,
        "num_key_value_heads": hidden // wide // 2,
        "head_dim": wide,
    }


def make_target(hidden: int, layers: int, vocab: int) -> Target:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        **heads(hidden),
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
    )
    return Target(Qwen3ForCausalLM(config).eval().requires_grad_(False))


def make_drafter(hidden: int, layers: int, vocab: int, *, target_layers: int, block_size: int) -> Drafter:
    config = DraftConfig(
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        **heads(hidden),
        vocab_size=vocab,
        block_size=block_size,
        mask_token_id=vocab - 1,
        target_layer_ids=spread_taps(target_layers, layers),
        num_target_layers=target_layers,
        rope_theta=1e6,
    )
    return Drafter(config).reset_parameters(torch.Generator().manual_seed(1)).eval().requires_grad_(False)


def report(rows: dict[str, tuple[Any, str, float]]) -> int:
    """Print figure, bound and budget of each row; 1 when one is missed."""
    missed = 0
    for name, (value, bound, budget) in rows.items():
        good = value >= budget if bound == "at least" else value <= budget
        missed += not good
        print(f"{name:58} {value:8.3f}   {bound} {budget}{'' if good else '   MISSED'}")
    return int(missed > 0)
