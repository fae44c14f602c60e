"""The target's embedding and output head, which every drafter borrows: of a loaded model, or from its files.

Read from the files alone, an evaluation with cached features never loads the target: it takes the rows of
the embedding that blocks need (anchors and the mask) and the head.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dflash.errors import Refused

EMBEDDINGS = (
    "model.embed_tokens.weight",
    "model.language_model.embed_tokens.weight",
    "language_model.model.embed_tokens.weight",
    "transformer.wte.weight",
)
HEADS = ("lm_head.weight", "language_model.lm_head.weight", "model.lm_head.weight")
# Heads that do more than a matrix product; a drafter was never trained through those.
UNUSUAL = (
    "final_logit_softcapping",
    "logit_scale",
    "logits_scaling",
    "lm_head_multiplier",
    "embedding_multiplier",
)


@dataclass
class Vocabulary:
    """Embedding rows for the ids in `rows` (None: all of them, row = id) and the head [vocab, H]."""

    embedding: Tensor
    head: Tensor
    rows: dict[int, int] | None = None

    @classmethod
    def of_model(cls, model: Any) -> Vocabulary:
        """Those of a loaded Hugging Face model."""
        refuse_unusual(model.config.to_dict())
        table, head = model.get_input_embeddings(), model.get_output_embeddings()
        if getattr(head, "bias", None) is not None:
            raise Refused("the target's head has a bias: it is not a plain matrix product")
        return cls(table.weight, head.weight)

    @classmethod
    def read(cls, folder: Path, ids: Sequence[int] | None, dtype: torch.dtype) -> Vocabulary:
        """From the safetensors files of a target's folder: embedding rows of `ids` (None: all), and the whole head."""
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        refuse_unusual(config)
        files = tensor_files(folder)
        table = next((name for name in EMBEDDINGS if name in files), None)
        if table is None:
            raise Refused(
                f"{folder}: no embedding found in its safetensors", f"looked for {', '.join(EMBEDDINGS)}"
            )
        head = next((name for name in HEADS if name in files), None)
        if head is not None and head.replace(".weight", ".bias") in files:
            raise Refused(f"{folder}: its head has a bias: it is not a plain matrix product")
        if head is None:
            if not _tied(config):
                raise Refused(
                    f"{folder}: no lm_head in its safetensors and tie_word_embeddings is not true",
                    "a random head accepts nothing",
                )
            head = table
        if ids is None:
            return cls(_tensor(files[table], table).to(dtype), _tensor(files[head], head).to(dtype))
        wanted = sorted(set(ids))
        embedding = _rows(files[table], table, wanted).to(dtype)
        return cls(
            embedding, _tensor(files[head], head).to(dtype), {token: row for row, token in enumerate(wanted)}
        )

    def to(self, place: torch.dtype | str) -> Vocabulary:
        """The same in another dtype or on another device."""
        return Vocabulary(self.embedding.to(place), self.head.to(place), self.rows)

    @property
    def size(self) -> int:
        return int(self.head.shape[0])

    def embed(self, ids: Tensor) -> Tensor:
        """Embeddings [.., H] of token ids [..]."""
        if self.rows is not None:
            ids = torch.tensor([self.rows[token] for token in ids.flatten().tolist()]).view_as(ids)
        return torch.nn.functional.embedding(ids, self.embedding)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [.., vocab] in the head's dtype."""
        return torch.nn.functional.linear(hidden.to(self.head.dtype), self.head)

    def greedy(self, hidden: Tensor, rows_at_once: int = 128) -> Tensor:
        """Most likely token after each row [rows, H]; in chunks, since a vocabulary's logits are large."""
        best = []
        for at in range(0, len(hidden), rows_at_once):
            logits = self.logits(hidden[at : at + rows_at_once]).float()
            if not torch.isfinite(logits.amax()):
                raise Refused("the target's logits are not finite", "never float16; is the model damaged?")
            best.append(logits.argmax(-1))
        return torch.cat(best)


def refuse_unusual(config: dict[str, Any]) -> None:
    """Refuse targets whose logits are not embedding, layers and head alone."""
    for place in (config, config.get("text_config") or {}):
        if str(place.get("model_type", "")).startswith("gemma"):
            raise Refused("target config: gemma scales its embeddings: they are not plain rows of a table")
        for name in UNUSUAL:
            if place.get(name) not in (None, 1, 1.0, 0):
                raise Refused(f"target config: {name}={place[name]}: its head is not a plain matrix product")


def tensor_files(folder: Path) -> dict[str, Path]:
    """Tensor name -> safetensors file, from the index or from the headers."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        names = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        return {name: folder / file for name, file in names.items()}
    from safetensors import safe_open

    files: dict[str, Path] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(str(file), framework="pt") as shard:
            files.update(dict.fromkeys(shard.keys(), file))
    return files


def _tied(config: dict[str, Any]) -> bool:
    text = config.get("text_config") or {}
    return bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False)))


def _tensor(file: Path, name: str) -> Tensor:
    from safetensors import safe_open

    with safe_open(str(file), framework="pt") as shard:
        return shard.get_tensor(name)


def _rows(file: Path, name: str, rows: Sequence[int]) -> Tensor:
    from safetensors import safe_open

    with safe_open(str(file), framework="pt") as shard:
        table = shard.get_slice(name)
        size = table.get_shape()[0]
        for row in rows:
            if not 0 <= row < size:
                raise Refused(f"token {row} is outside the target's embedding of {size} rows")
        return torch.cat([table[row : row + 1] for row in rows])
