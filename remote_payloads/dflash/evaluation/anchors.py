"""Where blocks are measured: uniform anchors in the response, the same for every checkpoint, nested by count."""

from __future__ import annotations

import hashlib


def candidates(prompt_length: int, total: int, drafted: int) -> range:
    """Anchors with all `drafted` labels after them: from the first response token on, never in the prompt.

    A later anchor would count a cut streak as a short one.
    """
    return range(prompt_length, max(prompt_length, total - drafted))


def choose_anchors(positions: range, at_most: int, seed: int, prompt_id: str) -> list[int]:
    """A seeded uniform sample, sorted. Each position has its own fixed rank, so 5 lie among 30."""

    def rank(position: int) -> bytes:
        return hashlib.sha256(f"{seed}/{prompt_id}/{position - positions.start}".encode()).digest()

    return sorted(sorted(positions, key=rank)[:at_most])
