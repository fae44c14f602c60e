"""Acceptance of drafted blocks, as pure functions (no model, no files).

Lengths count drafted tokens in a row from the anchor: neither the anchor nor the bonus token. Ties rank by
probability, then smaller token id; torch.topk's own order among equals is arbitrary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def ranks_of(scores: Tensor, labels: Tensor) -> Tensor:
    """0-based rank of each label [..] among scores [.., vocab]: how many tokens the drafter prefers."""
    chosen = scores.gather(-1, labels[..., None])
    ids = torch.arange(scores.shape[-1], device=scores.device)
    ahead = (scores > chosen) | ((scores == chosen) & (ids < labels[..., None]))
    return ahead.sum(-1)


def best_tokens(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Ids and scores [rows, k] of the k best tokens, ties by smaller id, without sorting the vocabulary."""
    values, ids = torch.topk(scores, k, dim=-1)
    # Ties across the cut: topk may have left out a smaller id. Rare, and only those rows are sorted whole.
    edge = values[:, -1:]
    crossed = (scores == edge).sum(-1) > (values == edge).sum(-1)
    for row in crossed.nonzero().flatten().tolist():
        values[row], ids[row] = (x[:k] for x in torch.sort(scores[row], descending=True, stable=True))
    ids, order = torch.sort(ids, dim=-1)
    values, again = torch.sort(values.gather(-1, order), dim=-1, descending=True, stable=True)
    return ids.gather(-1, again), values


def rank_exactly(probabilities: Sequence[Any]) -> list[int]:
    """Token ids, best first, for exact numbers (the golden files' fractions)."""
    return sorted(range(len(probabilities)), key=lambda token: (-probabilities[token], token))


def streak(hits: Sequence[bool] | Sequence[int]) -> int:
    """Leading hits; one miss ends it, whatever follows."""
    for at, hit in enumerate(hits):
        if not hit:
            return at
    return len(hits)


def coverage_streak(ranks: Sequence[int], k: int) -> int:
    """Leading slots whose reference token is among the k best. For k > 1 a bound that no verifier reaches."""
    return streak([rank < k for rank in ranks])


def simulate_loop(streaks: dict[int, int], first: int, last: int) -> list[int]:
    """Acceptance lengths (bonus included) of a greedy decoding loop that starts at `first`.

    Greedy speculative decoding reproduces the reference, so each round ends at its streak plus one. Rounds
    whose anchor lies after `last` lack labels and do not count. `streaks` maps anchor to accepted drafts.
    """
    rounds, anchor = [], first
    while anchor <= last:
        rounds.append(streaks[anchor] + 1)
        anchor += rounds[-1]
    return rounds


def per_position(streaks: Sequence[int], hits: Sequence[Sequence[int]], drafted: int) -> dict[str, Any]:
    """Counts per slot: hits, blocks still alive there, and the rates that they give."""
    blocks = len(streaks)
    hit_counts = [sum(row[k] for row in hits) for k in range(drafted)]
    alive = [sum(s >= k for s in streaks) for k in range(1, drafted + 1)]
    reached = [blocks, *alive[:-1]]
    return {
        "hits": hit_counts,
        "streak_at_least": alive,
        "blocks": blocks,
        "accept_rate": [a / blocks if blocks else None for a in alive],
        "cond_accept_rate": [a / r if r else None for a, r in zip(alive, reached, strict=True)],
    }


def distinct_ngram_rate(tokens: Sequence[int], n: int = 8) -> float | None:
    """Share of distinct n-grams; a looping reference inflates every length and shows here."""
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return len(set(grams)) / len(grams) if grams else None
