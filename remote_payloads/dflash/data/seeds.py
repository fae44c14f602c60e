"""Random numbers as a function of what they are for: no generator state to save, none to lose.

A resumed run draws the same data order and anchors as one that never stopped, since each draw is seeded by
the run's seed and the names of its use (epoch, step, rank), not by what was drawn before it.
"""

from __future__ import annotations

import hashlib

import torch


def seed_of(seed: int, *use: str | int) -> int:
    """A 63-bit seed for one use."""
    text = "/".join(str(part) for part in (seed, *use))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *use: str | int) -> torch.Generator:
    """A CPU generator for one use."""
    return torch.Generator().manual_seed(seed_of(seed, *use))


class DataOrder:
    """An endless stream of sample numbers: each epoch a fresh permutation, addressed by position."""

    def __init__(self, samples: int, seed: int) -> None:
        self.samples, self.seed = samples, seed
        self._epoch, self._order = -1, [0]

    def at(self, position: int) -> int:
        """The sample at a position of the stream."""
        epoch, offset = divmod(position, self.samples)
        if epoch != self._epoch:
            drawn = torch.randperm(self.samples, generator=generator(self.seed, "epoch", epoch))
            self._epoch, self._order = epoch, drawn.tolist()
        return self._order[offset]
