"""A drafter's config.json: read strictly, refused by name, written in the published layout.

The reader's rule for block_size, target_layer_ids, mask_token_id and num_target_layers: the nested
`dflash_config` wins, then the top level. Nothing that changes acceptance is ever guessed: a missing
list of taps or a missing mask id is a refusal, since a wrong guess loads cleanly and ruins results.
Standard library only, Python 3.8: the preflight reads it too.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dflash.errors import Refused

FULL = "full_attention"
SLIDING = "sliding_attention"

# Keys (top level or in dflash_config) of drafters with another architecture: name, and what it is.
FOREIGN = {
    "conv_kernel_size": "a DFlash2 drafter (grouped convolutions)",
    "selector_rank": "a DFlash2 drafter (path selector)",
    "projector_type": "a Domino drafter (projector)",
    "attention_sink_bias": "attention with a sink bias",
    "sample_from_anchor": "a DSpark drafter: slot 0 predicts too, and one token more is drafted",
}


@dataclass(frozen=True)
class DraftConfig:
    """Everything that decides what a drafter computes. Taps are 0-based decoder layers of the target."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int
    rope_theta: float
    rms_norm_eps: float = 1e-6
    layer_types: tuple[str, ...] = ()
    sliding_window: int | None = None
    max_position_embeddings: int = 40960
    depth_guessed: bool = False  # num_target_layers is only what the taps need at least

    def __post_init__(self) -> None:
        if not self.layer_types:
            object.__setattr__(self, "layer_types", (FULL,) * self.num_hidden_layers)
        self._check()

    def _check(self) -> None:
        positive = (
            "hidden_size intermediate_size num_hidden_layers num_attention_heads "
            "num_key_value_heads head_dim vocab_size num_target_layers"
        )
        for name in positive.split():
            if getattr(self, name) < 1:
                raise Refused(f"config: {name} is {getattr(self, name)}; it must be at least 1")
        if self.block_size < 2:
            raise Refused(f"config: block_size {self.block_size} drafts nothing", "it counts the anchor")
        if self.num_attention_heads % self.num_key_value_heads:
            raise Refused("config: num_attention_heads is not a multiple of num_key_value_heads")
        if self.head_dim % 2:
            raise Refused(f"config: head_dim {self.head_dim} is odd; RoPE rotates halves")
        if not (self.rope_theta > 0 and math.isfinite(self.rope_theta)):
            raise Refused(f"config: rope_theta is {self.rope_theta}")
        if not (self.rms_norm_eps >= 0 and math.isfinite(self.rms_norm_eps)):
            raise Refused(f"config: rms_norm_eps is {self.rms_norm_eps}")
        if not 0 <= self.mask_token_id < self.vocab_size:
            raise Refused(
                f"config: mask_token_id {self.mask_token_id} is outside the target's vocabulary "
                f"of {self.vocab_size}",
                "the mask must be an existing, otherwise unused row of the target's embedding",
            )
        self._check_taps()
        self._check_layers()

    def _check_taps(self) -> None:
        taps, depth = self.target_layer_ids, self.num_target_layers
        if not taps:
            raise Refused("config: target_layer_ids is empty")
        if len(set(taps)) != len(taps):
            raise Refused(f"config: target_layer_ids {list(taps)} names a layer twice")
        for tap in taps:
            if not 0 <= tap < depth:
                raise Refused(f"config: tap {tap} does not exist in a target of {depth} layers")
            if tap == depth - 1:
                raise Refused(
                    f"config: tap {tap} is the target's last layer, whose output engines read "
                    "differently (before or after the final norm)",
                    "taps end at the last but two layers",
                )

    def _check_layers(self) -> None:
        if len(self.layer_types) != self.num_hidden_layers:
            raise Refused(
                f"config: layer_types has {len(self.layer_types)} entries for {self.num_hidden_layers} layers"
            )
        for kind in self.layer_types:
            if kind not in (FULL, SLIDING):
                raise Refused(f"config: layer type {kind!r} is not known", f"known: {FULL}, {SLIDING}")
        if SLIDING in self.layer_types and not (self.sliding_window and self.sliding_window > 0):
            raise Refused("config: sliding layers without a sliding_window")

    @property
    def drafted(self) -> int:
        """D, the tokens drafted per block: the anchor in slot 0 is not one of them."""
        return self.block_size - 1

    @property
    def feature_size(self) -> int:
        """Width of a context feature: one hidden state per tap."""
        return len(self.target_layer_ids) * self.hidden_size

    def window(self, layer: int) -> int | None:
        """The sliding window of a layer, None where it attends fully."""
        return self.sliding_window if self.layer_types[layer] == SLIDING else None

    @classmethod
    def read(cls, path: Path) -> DraftConfig:
        """Read a `config.json` (or the folder that holds one)."""
        return cls.parse(read_document(path / "config.json" if path.is_dir() else path))

    @classmethod
    def parse(cls, document: Any) -> DraftConfig:
        """Build from a published or own config; refuse what it cannot stand for."""
        if not isinstance(document, dict):
            raise Refused("config: not a JSON object")
        nested = _section(document, "dflash_config")
        _refuse_foreign(document, nested)

        def either(name: str, hint: str) -> Any:
            for place in (nested, document):
                if place.get(name) is not None:
                    return place[name]
            raise Refused(f"config: {name} is missing", hint)

        def top(name: str) -> Any:
            if document.get(name) is None:
                raise Refused(f"config: {name} is missing")
            return document[name]

        def whole(name: str, value: Any) -> int:
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value // 1:
                raise Refused(f"config: {name} is {value!r}, not a whole number")
            return int(value)

        layers = whole("num_hidden_layers", top("num_hidden_layers"))
        types = _layer_types(document, layers)
        window = document.get("sliding_window")
        taps = either(
            "target_layer_ids", "a guessed list loads cleanly and ruins acceptance; take the trained one"
        )
        if not isinstance(taps, list) or not all(
            isinstance(t, int) and not isinstance(t, bool) for t in taps
        ):
            raise Refused(f"config: target_layer_ids is {taps!r}, not a list of integers")
        return cls(
            hidden_size=whole("hidden_size", top("hidden_size")),
            intermediate_size=whole("intermediate_size", top("intermediate_size")),
            num_hidden_layers=layers,
            num_attention_heads=whole("num_attention_heads", top("num_attention_heads")),
            num_key_value_heads=whole("num_key_value_heads", top("num_key_value_heads")),
            head_dim=whole("head_dim", top("head_dim")),
            vocab_size=whole("vocab_size", top("vocab_size")),
            block_size=whole("block_size", either("block_size", "it counts the anchor: 16 drafts 15")),
            mask_token_id=whole(
                "mask_token_id", either("mask_token_id", "no fallback to pad or eos: it degrades quietly")
            ),
            target_layer_ids=tuple(taps),
            num_target_layers=whole(
                "num_target_layers", either("num_target_layers", "the number of decoder layers of the target")
            ),
            rope_theta=_rope_theta(document),
            rms_norm_eps=_number("rms_norm_eps", top("rms_norm_eps")),
            layer_types=types,
            sliding_window=None if window is None else whole("sliding_window", window),
            max_position_embeddings=whole(
                "max_position_embeddings", document.get("max_position_embeddings") or 40960
            ),
            depth_guessed=document.get("depth_guessed") is True,
        )

    def document(self, dtype: str = "bfloat16") -> dict[str, Any]:
        """The published config.json: theta in both places, taps and block size in both where read."""
        sliding = SLIDING in self.layer_types
        return {
            "architectures": ["DFlashDraftModel"],
            "model_type": "qwen3",
            "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "rms_norm_eps": self.rms_norm_eps,
            "rope_theta": self.rope_theta,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_theta},
            "rope_scaling": None,
            "max_position_embeddings": self.max_position_embeddings,
            "layer_types": list(self.layer_types),
            "sliding_window": self.sliding_window,
            "use_sliding_window": sliding,
            "max_window_layers": self.num_hidden_layers,
            "attention_bias": False,
            "attention_dropout": 0.0,
            "tie_word_embeddings": False,
            "vocab_size": self.vocab_size,
            "num_target_layers": self.num_target_layers,
            **({"depth_guessed": True} if self.depth_guessed else {}),
            "dtype": dtype,
            "block_size": self.block_size,
            "dflash_config": {
                "target_layer_ids": list(self.target_layer_ids),
                "mask_token_id": self.mask_token_id,
                "block_size": self.block_size,
            },
        }


def spread_taps(num_target_layers: int, taps: int) -> tuple[int, ...]:
    """Default taps for a NEW config: spread from layer 1 to N-3 inclusive. Never used when loading."""
    if taps == 1:
        return (num_target_layers // 2,)
    return tuple(round(1 + i * (num_target_layers - 4) / (taps - 1)) for i in range(taps))


def read_document(file: Path) -> dict[str, Any]:
    """The JSON object in a file, or a refusal that names the file."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Refused(f"{file}: no such file", "a drafter folder holds config.json") from None
    except (OSError, RecursionError) as error:
        raise Refused(f"{file}: cannot be read: {error}") from None
    except ValueError as error:
        raise Refused(f"{file}: not JSON: {error}") from None
    if not isinstance(document, dict):
        raise Refused(f"{file}: not a JSON object")
    return document


def _section(document: dict[str, Any], name: str) -> dict[str, Any]:
    found = document.get(name) or {}
    if not isinstance(found, dict):
        raise Refused(f"config: {name} is {found!r}, not an object")
    return found


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Refused(f"config: {name} is {value!r}, not a number")
    return float(value)


def _layer_types(document: dict[str, Any], layers: int) -> tuple[str, ...]:
    """Which layers slide. Run as full attention, a drafter trained on sliding layers accepts less."""
    types, slides = document.get("layer_types"), document.get("use_sliding_window")
    if types is None:
        if slides:
            raise Refused(
                "config: use_sliding_window is true, but layer_types does not say which layers slide",
                "a list with one of full_attention, sliding_attention per layer",
            )
        return (FULL,) * max(0, layers)
    if not isinstance(types, list):
        raise Refused(f"config: layer_types is {types!r}, not a list")
    if SLIDING in types and slides is False:
        raise Refused("config: layer_types has sliding layers, but use_sliding_window is false")
    return tuple(map(str, types))


def _rope_theta(document: dict[str, Any]) -> float:
    parameters, scaling = _section(document, "rope_parameters"), _section(document, "rope_scaling")
    for place in (parameters, scaling):
        kind = place.get("rope_type") or place.get("type") or "default"
        if kind != "default":
            raise Refused(f"config: RoPE of type {kind!r} is not supported", "only plain RoPE is")
    for place in (parameters, document):
        if place.get("partial_rotary_factor") not in (None, 1, 1.0):
            raise Refused(
                f"config: partial_rotary_factor {place['partial_rotary_factor']}, "
                "but a drafter's RoPE spans the whole head",
                "it was copied from the target's config",
            )
    if parameters.get("mrope_section") or scaling.get("mrope_section"):
        raise Refused("config: mrope_section was copied from the target; a drafter has plain RoPE")
    values = {
        _number("rope_theta", place["rope_theta"])
        for place in (parameters, document)
        if place.get("rope_theta") is not None
    }
    if not values:
        raise Refused("config: rope_theta is missing", "it would silently become 10000")
    if len(values) > 1:
        raise Refused(f"config: rope_theta says {sorted(values)}: top level and rope_parameters differ")
    return values.pop()


def _refuse_foreign(document: dict[str, Any], nested: dict[str, Any]) -> None:
    for place in (nested, document):
        for key, what in FOREIGN.items():
            if place.get(key):
                raise Refused(f"config: {key}={place[key]!r}: this is {what}, not DFlash")
    if document.get("attention_bias"):
        raise Refused("config: attention_bias is true; DFlash projections have no bias")
    if "float16" in (document.get("dtype"), document.get("torch_dtype")):
        raise Refused("config: float16 weights overflow to NaN", "bfloat16 or float32")
    if document.get("hidden_act", "silu") != "silu":
        raise Refused(f"config: hidden_act {document['hidden_act']!r}; DFlash uses silu")
