"""Peak memory and disk of an evaluation, computed from config.json and safetensors headers beforehand.

Standard library only, Python 3.8. Nothing is loaded: shapes and sizes are enough.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, Dict, List, NamedTuple

BASE = 450 << 20  # interpreter, torch and transformers after import, measured
SIZES = {"float32": 4, "bfloat16": 2, "float16": 2}
LOGIT_BYTES = 256 << 20  # most that the evaluator holds of raw logits (evaluation/evaluator.py)
ROWS_AT_ONCE = 128  # rows of target logits at once (target/embeddings.py)


class Shape(NamedTuple):
    """What decides the size of a model."""

    hidden: int
    intermediate: int
    layers: int
    kv_width: int
    vocab: int


def shape_of(config: Dict[str, Any]) -> Shape:
    """Read a Hugging Face config, also of a multimodal wrapper."""
    text = config.get("text_config") or config
    heads = int(text.get("num_attention_heads", 1))
    head_dim = int(text.get("head_dim") or int(text["hidden_size"]) // heads)
    return Shape(
        int(text["hidden_size"]),
        int(
            text.get("intermediate_size") or text.get("moe_intermediate_size") or 4 * int(text["hidden_size"])
        ),
        int(text["num_hidden_layers"]),
        int(text.get("num_key_value_heads", heads)) * head_dim,
        int(text["vocab_size"]),
    )


def elements(folder: Path) -> int:
    """Parameters of a folder of safetensors, from the headers alone."""
    total = 0
    for file in sorted(folder.glob("*.safetensors")):
        for entry in header(file).values():
            count = 1
            for size in entry["shape"]:
                count *= size
            total += count
    return total


def header(file: Path) -> Dict[str, Any]:
    """The header of a safetensors file, without its metadata; ValueError when it is not whole."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        head = stream.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else size
        if length + 8 > size:
            raise ValueError("{}: cut short".format(file))
        document = json.loads(stream.read(length))
    document.pop("__metadata__", None)
    end = max((entry["data_offsets"][1] for entry in document.values()), default=0)
    if 8 + length + end != size:
        raise ValueError("{}: {} bytes, its header says {}".format(file, size, 8 + length + end))
    return dict(document)


def memory_parts(
    target: Shape,
    *,
    target_elements: int,
    drafter_bytes: int,
    size: int,
    feature_width: int,
    longest: int,
    target_needed: bool,
    budgets: List[int],
    block_size: int,
    blocks: int = 30,
    largest_shard: int = 0,
) -> Dict[str, int]:
    """Bytes of each part; the target's phase and the drafter's follow each other, so the peak is a maximum."""
    parts = {"base": BASE}
    if target_needed:
        parts["target_weights"] = target_elements * size
        activations = longest * (6 * target.hidden + 3 * target.intermediate) * size
        cache = 2 * target.layers * target.kv_width * longest * size
        logits = ROWS_AT_ONCE * target.vocab * 6
        features = longest * feature_width * size * 2
        # While a shard is read, its pages are mapped beside the tensors made of them.
        parts["target_loading"] = largest_shard
        parts["target_work"] = activations + cache + logits + features
    parts["drafter_weights"] = drafter_bytes
    parts["head"] = target.vocab * target.hidden * size
    block = (block_size - 1) * target.vocab * 4
    held = max(min(LOGIT_BYTES, blocks * block), block)
    tree = 3 * block if budgets else 0
    # Kept logits of one prompt's blocks, the chunk being made (bf16 and fp32), ranks and trees of one block.
    parts["drafter_work"] = 3 * held + 2 * block + tree + longest * feature_width * size * 3
    return parts


def peak(parts: Dict[str, int]) -> int:
    """The larger phase on top of what is always there; the drafter is loaded before the target."""
    first = parts.get("target_weights", 0) + max(parts.get("target_loading", 0), parts.get("target_work", 0))
    second = parts["head"] + parts["drafter_work"]
    return parts["base"] + parts["drafter_weights"] + max(first, second)
