"""A frozen target model: its tap features, its embedding and head, and a session whose cache can be cropped.

The feature of a token is the output of each tapped decoder layer (0-based), concatenated in the config's
order: `hidden_states[l + 1]` in Hugging Face's numbering, before the target's final norm. Taken with hooks,
so that neither the other layers' states nor the logits of a whole prompt are ever held.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dflash.errors import Refused
from dflash.target.embeddings import Vocabulary


class Target:
    """What the drafter needs of a target; `model` is a Hugging Face causal language model."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.decoder = _decoder(model)
        self.layers: nn.ModuleList = self.decoder.layers
        self.vocabulary = Vocabulary.of_model(model)
        names = inspect.signature(self.decoder.forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"

    @classmethod
    def load(cls, folder: Path, dtype: torch.dtype, device: str = "cpu") -> Target:
        """Load from a local folder; nothing is fetched, no code of the folder is run."""
        import transformers
        from safetensors import SafetensorError

        if dtype == torch.float16:
            raise Refused("float16 overflows in these models", "bfloat16 or float32")
        options: dict[str, Any] = {"dtype": dtype, "local_files_only": True, "trust_remote_code": False}
        options["output_loading_info"] = True
        try:
            model, loading = _load(transformers, str(folder), options)
        except ValueError as error:
            raise Refused(f"{folder}: transformers cannot load this target: {error}") from error
        except (OSError, RuntimeError, SafetensorError) as error:
            raise Refused(
                f"{folder}: not a loadable target: {error}", "copy the whole model folder"
            ) from error
        missing = sorted(loading["missing_keys"])
        if missing:
            # Transformers goes on with random ones: a random head accepts nothing, and trains a drafter on noise.
            raise Refused(
                f"{folder}: {len(missing)} weights are missing: {', '.join(missing[:4])}",
                "copy the whole model folder; is tie_word_embeddings right?",
            )
        return cls(model.to(device).eval().requires_grad_(False))

    @property
    def device(self) -> torch.device:
        return self.vocabulary.head.device

    def read(
        self,
        ids: Tensor,
        taps: Sequence[int],
        cache: Any = None,
        **inputs: Any,
    ) -> tuple[Tensor, Tensor, Any]:
        """Features [B, S, taps * H], last hidden states [B, S, H] (normed) and the cache after `ids` [B, S]."""
        for tap in taps:
            if not 0 <= tap < len(self.layers):
                raise Refused(f"tap {tap}: the target has {len(self.layers)} decoder layers")
        seen: dict[int, Tensor] = {}
        with ExitStack() as hooks:
            for tap in set(taps):
                hooks.callback(self.layers[tap].register_forward_hook(_keep(seen, tap)).remove)
            inputs.setdefault("use_cache", cache is not None)
            out = self.decoder(input_ids=ids, **{self._cache_name: cache}, **inputs)
        features = torch.cat([seen[tap] for tap in taps], dim=-1) if taps else ids.new_empty(*ids.shape, 0)
        return features, out.last_hidden_state, getattr(out, self._cache_name, None)

    @torch.no_grad()
    def features(self, ids: Sequence[int], taps: Sequence[int], first: int = 0) -> tuple[Tensor, Tensor]:
        """Features [S, taps * H] of one sequence, and the greedy next token after each row from `first` on."""
        features, hidden, _ = self.read(torch.tensor([list(ids)], device=self.device), taps)
        return features[0], self.vocabulary.greedy(hidden[0, first:])


def _load(transformers: Any, folder: str, options: dict[str, Any]) -> Any:
    try:
        return transformers.AutoModelForCausalLM.from_pretrained(folder, **options)
    except ValueError as error:
        # Multimodal wrappers (Qwen3.6) are known under another auto class.
        wrapper = getattr(transformers, "AutoModelForImageTextToText", None)
        if wrapper is None or "Unrecognized configuration" not in str(error):
            raise
    return wrapper.from_pretrained(folder, **options)


class Session:
    """A target that has read a prefix: feed tokens, get their features and greedy successors, crop back.

    Recurrent states and rolling windows cannot be cropped: such a target reads its whole prefix again, which
    is slow and right. A session that never `crops` keeps any cache.
    """

    def __init__(self, target: Target, taps: Sequence[int], *, crops: bool = True) -> None:
        self.target = target
        self.taps = list(taps)
        self.ids: list[int] = []
        self._cache: Any = None
        self._crops = crops
        self._cached = True

    @torch.no_grad()
    def feed(self, ids: Sequence[int]) -> tuple[Tensor, list[int]]:
        """Read `ids` after the prefix: features [1, n, taps * H] and the greedy token after each."""
        first = len(self.ids)
        self.ids.extend(ids)
        fresh = self._cache is None
        todo = self.ids if fresh else list(ids)
        features, hidden, cache = self.target.read(
            torch.tensor([todo], device=self.target.device), self.taps, self._cache, use_cache=self._cached
        )
        self._cached = self._cached and (not self._crops or _can_crop(cache))
        self._cache = cache if self._cached else None
        if fresh:
            features, hidden = features[:, first:], hidden[:, first:]
        return features, self.target.vocabulary.greedy(hidden[0]).tolist()

    def crop(self, rows: int) -> None:
        """Forget everything after the first `rows` tokens."""
        if not self._crops:
            raise ValueError("this session was opened without cropping")
        del self.ids[rows:]
        cache: Any = self._cache
        if cache is not None:
            for layer in cache.layers:
                layer.keys = layer.keys[..., :rows, :]
                layer.values = layer.values[..., :rows, :]


def _can_crop(cache: Any) -> bool:
    """Whether rows can simply be cut off: not in recurrent states, not in rolling windows."""
    layers: list[Any] = getattr(cache, "layers", None) or []
    return bool(layers) and all(
        getattr(layer, "keys", None) is not None and not getattr(layer, "is_sliding", False)
        for layer in layers
    )


def _keep(seen: dict[int, Tensor], tap: int) -> Any:
    def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
        seen[tap] = output[0] if isinstance(output, tuple) else output

    return hook


def _decoder(model: Any) -> Any:
    """The module that holds the decoder layers, also inside multimodal wrappers."""
    at = model
    for _ in range(4):
        if isinstance(getattr(at, "layers", None), nn.ModuleList):
            return at
        at = next((getattr(at, name) for name in ("language_model", "model") if hasattr(at, name)), None)
        if at is None:
            break
    raise Refused(f"{type(model).__name__}: no list of decoder layers found in this target")
