"""Features of references on disk: one safetensors file per prompt, whole or absent, with what it rests on.

Each file also records the target agreement of its reference: how often the target's own greedy choice, in
the very forward that gave the features, is the reference's token. It catches a wrong template, thinking
flag, tokenizer or revision, and shifted labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from dflash.data.references import Reference
from dflash.files import write_durably
from dflash.target.model import Target


@dataclass(frozen=True)
class Features:
    """Features [S, taps * H] of prompt and response, and the agreement counts of the response."""

    rows: Tensor
    agree: int
    of: int


def compute(target: Target, reference: Reference, taps: Sequence[int]) -> Features:
    """One forward over the whole sequence."""
    rows, greedy = target.features(reference.ids, taps, first=len(reference.prompt_ids) - 1)
    predicted = greedy[:-1].tolist()
    agree = sum(p == t for p, t in zip(predicted, reference.response_ids, strict=True))
    return Features(rows, agree, len(predicted))


def write(file: Path, features: Features, about: dict[str, str]) -> None:
    """Keep them durably."""
    from safetensors.torch import save

    counts = torch.tensor([features.agree, features.of])
    write_durably(file, save({"features": features.rows.contiguous(), "agreement": counts}, metadata=about))


def read(file: Path) -> Features | None:
    """Kept features, None where there are none. A damaged file is taken away and made again."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(str(file))
        agree, of = tensors["agreement"].tolist()
        return Features(tensors["features"], agree, of)
    except FileNotFoundError:
        return None
    except (SafetensorError, KeyError):
        file.unlink(missing_ok=True)
        return None
