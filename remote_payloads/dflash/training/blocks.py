"""Training blocks: which positions are anchors in a step, and the labels and weights of their slots.

Slot j of a block at anchor t predicts token t + j (the same position, no shift). Slot 0 is the anchor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dflash.data.samples import Sample

GAMMA = {16: 7.0, 10: 5.0, 8: 4.0}


def default_gamma(block_size: int) -> float:
    """The decay of the published recipes; between and beyond them 0.45 of the block, an extrapolation."""
    return GAMMA.get(block_size, round(0.45 * block_size, 2))


def loss_weights(block_size: int, gamma: float) -> list[float]:
    """w_k = exp(-(k - 1) / gamma) for slot k = 1.., and 0 for the anchor's slot."""
    return [0.0] + [math.exp(-(k - 1) / gamma) for k in range(1, block_size)]


@dataclass(frozen=True)
class Blocks:
    """Blocks of a batch: ids [B, S] (right-padded), anchors [B, N], valid [B, N], labels [B, N, D], scored."""

    ids: Tensor
    anchors: Tensor
    valid: Tensor
    labels: Tensor
    scored: Tensor

    def anchor_tokens(self) -> Tensor:
        """The clean token of each block's slot 0 [B, N]."""
        return self.ids.gather(1, self.anchors)

    def to(self, device: torch.device) -> Blocks:
        """The same on another device."""
        return Blocks(*(getattr(self, name).to(device) for name in self.__dataclass_fields__))


def make_blocks(
    samples: Sequence[Sample], anchors: int, block_size: int, generator: torch.Generator, pad: int = 0
) -> Blocks:
    """Draw up to `anchors` anchors per sample without replacement, sorted; fewer are padded as not valid.

    A block may run over the end of the response: those slots have no label and do not count, the block
    stays. Anchors are drawn per sample, so that a packed row cannot starve one of its documents.
    """
    longest = max(len(s.input_ids) for s in samples)
    ids = torch.full((len(samples), longest), pad)
    supervised = torch.zeros(len(samples), longest + block_size, dtype=torch.bool)
    chosen = torch.zeros(len(samples), anchors, dtype=torch.long)
    valid = torch.zeros(len(samples), anchors, dtype=torch.bool)
    for row, sample in enumerate(samples):
        ids[row, : len(sample.input_ids)] = torch.tensor(sample.input_ids)
        supervised[row, : len(sample.supervised)] = torch.tensor(sample.supervised)
        candidates = torch.tensor(sample.candidates(), dtype=torch.long)
        picked = candidates[torch.randperm(len(candidates), generator=generator)[:anchors]].sort().values
        chosen[row, : len(picked)] = picked
        valid[row, : len(picked)] = True
    positions = chosen[..., None] + torch.arange(1, block_size)
    flat = positions.flatten(1)
    labels = ids.gather(1, flat.clamp(max=longest - 1)).view_as(positions)
    scored = supervised.gather(1, flat).view_as(positions) & valid[..., None]
    return Blocks(ids, chosen, valid, labels, scored)
