"""Features for the trainer, micro-batch by micro-batch in the order of the data: here computed when asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from samples import Sample
from seeds import DataOrder
from target import Target


@dataclass(frozen=True)
class MicroBatch:
    """Samples of one micro-batch and their features [B, S, taps * H], right-padded."""

    samples: Sequence[Sample]
    features: Tensor

    @property
    def tokens(self) -> int:
        return sum(len(s.input_ids) for s in self.samples)

    @property
    def bytes(self) -> int:
        return self.features.numel() * self.features.element_size()


class FeatureSource(Protocol):
    """Gives micro-batch number 0, 1, 2, ... of a rank; closes what it opened."""

    def get(self, number: int) -> MicroBatch: ...
    def measures(self) -> dict[str, Any]: ...
    def close(self) -> None: ...


class Plan:
    """Which samples form micro-batch `number` of a rank: a pure function, the same on every start."""

    def __init__(
        self, samples: Sequence[Sample], batch: int, seed: int, rank: int = 0, world: int = 1
    ) -> None:
        self.samples, self.batch, self.rank, self.world = samples, batch, rank, world
        self._order = DataOrder(len(samples), seed)

    def batch_at(self, number: int) -> list[Sample]:
        """The samples of a micro-batch; ranks take turns in one common order."""
        first = (number * self.world + self.rank) * self.batch
        return [self.samples[self._order.at(first + i)] for i in range(self.batch)]


class Inline:
    """Runs the target in the trainer's own thread: simplest, and right for a tiny target or a test."""

    def __init__(self, plan: Plan, target: Target, taps: Sequence[int]) -> None:
        self.plan, self.target, self.taps = plan, target, taps

    def get(self, number: int) -> MicroBatch:
        """Compute the features of a micro-batch now."""
        chosen = self.plan.batch_at(number)
        return MicroBatch(chosen, batch_features(self.target, chosen, self.taps))

    def measures(self) -> dict[str, Any]:
        """Nothing waits for anything here."""
        return {}

    def close(self) -> None:
        """Nothing to close."""


@torch.no_grad()
def batch_features(target: Target, batch: Sequence[Sample], taps: Sequence[int]) -> Tensor:
    """Features [B, S, taps * H]. Padding is on the right, where a causal target cannot see it."""
    longest = max(len(s.input_ids) for s in batch)
    ids = torch.zeros(len(batch), longest, dtype=torch.long)
    for row, sample in enumerate(batch):
        ids[row, : len(sample.input_ids)] = torch.tensor(sample.input_ids)
    return target.read(ids.to(target.device), taps)[0]
