"""Features for the trainer, micro-batch by micro-batch in the order of the data: here computed when asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from dflash.data.samples import Sample
from dflash.data.seeds import DataOrder
from dflash.errors import Refused
from dflash.target.model import Target


@dataclass(frozen=True)
class Origin:
    """What features rest on; those of another target, taps or dtype have the same shape and ruin a drafter."""

    target: str
    taps: tuple[int, ...]
    dtype: str

    def require(self, other: Origin) -> None:
        """Refuse features of another origin."""
        for name in ("target", "taps", "dtype"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise Refused(f"features of another {name}: {theirs} where {mine} is trained on")


@dataclass(frozen=True)
class MicroBatch:
    """Samples (ids, tokens, masks) of one micro-batch and their features [B, S, taps * H], right-padded."""

    samples: Sequence[Sample]
    features: Tensor
    origin: Origin

    @property
    def tokens(self) -> int:
        return sum(len(s.input_ids) for s in self.samples)

    @property
    def bytes(self) -> int:
        return int(self.features.numel() * self.features.element_size())


class FeatureSource(Protocol):
    """Gives micro-batch number 0, 1, 2, ... of a rank; closes what it opened."""

    def get(self, number: int) -> MicroBatch: ...
    def measures(self) -> dict[str, Any]: ...
    def close(self) -> None: ...


class Plan:
    """Which samples form micro-batch `number` of a rank: a pure function, the same on every start."""

    def __init__(self, count: int, batch: int, seed: int, *, rank: int = 0, world: int = 1) -> None:
        self.count, self.batch, self.seed, self.rank, self.world = count, batch, seed, rank, world
        self._order = DataOrder(count, seed)

    def numbers_at(self, number: int) -> list[int]:
        """Sample numbers of a micro-batch; ranks take turns in one common order."""
        first = (number * self.world + self.rank) * self.batch
        return [self._order.at(first + i) for i in range(self.batch)]

    def copy(self) -> Plan:
        """The same plan for another thread."""
        return Plan(self.count, self.batch, self.seed, rank=self.rank, world=self.world)


class Inline:
    """Runs the target in the trainer's own thread: simplest, and right for a tiny target or a test."""

    def __init__(self, samples: Sequence[Sample], plan: Plan, target: Target, origin: Origin) -> None:
        self.samples, self.plan, self.target, self.origin = samples, plan, target, origin

    def get(self, number: int) -> MicroBatch:
        """Compute the features of a micro-batch now."""
        chosen = [self.samples[i] for i in self.plan.numbers_at(number)]
        return MicroBatch(chosen, batch_features(self.target, chosen, self.origin.taps), self.origin)

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
