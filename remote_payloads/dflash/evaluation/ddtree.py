"""DDTree: the best tree of at most B drafted nodes under per-position marginals (the root is extra).

A node is a prefix of drafted tokens; its score is the product of its tokens' probabilities. The best tree
under that surrogate is the B most probable prefixes, found best first with a heap: after a node come its
next sibling and its first child. Ties go to the lexicographically smaller tuple of ranks. The order is the
same for every budget, so one tree built for the largest answers for all smaller ones.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dflash.errors import Refused
from dflash.evaluation.metrics import best_tokens


@dataclass(frozen=True)
class Tree:
    """Drafted nodes, best first. Parents: 0 is the root, i the i-th node. Depth 1 is a child of the root."""

    tokens: list[int]
    parents: list[int]
    depths: list[int]

    def truncate(self, budget: int) -> Tree:
        """The tree of a smaller budget: nodes come after their parents, in the order of every budget."""
        return Tree(self.tokens[:budget], self.parents[:budget], self.depths[:budget])

    def prefixes(self) -> list[tuple[int, ...]]:
        """Each node as the drafted tokens that lead to it."""
        paths: list[tuple[int, ...]] = []
        for token, parent in zip(self.tokens, self.parents, strict=True):
            paths.append((*(paths[parent - 1] if parent else ()), token))
        return paths

    def walk(self, reference: Sequence[int]) -> list[int]:
        """Numbers (from 1) of the nodes that follow `reference` from the root, as far as the tree goes."""
        children = {
            (parent, token): i
            for i, (parent, token) in enumerate(zip(self.parents, self.tokens, strict=True), 1)
        }
        path: list[int] = []
        node = 0
        for token in reference:
            found = children.get((node, token))
            if found is None:
                break
            path.append(found)
            node = found
        return path

    def accepted(self, reference: Sequence[int], budgets: Sequence[int]) -> dict[int, int]:
        """Accepted depth per budget, all from this one tree: the nodes of the walk that the budget has."""
        path = self.walk(reference)
        return {budget: sum(node <= budget for node in path) for budget in budgets}


def grow(tokens: Sequence[Sequence[int]], score: Callable[[tuple[int, ...]], Any], budget: int) -> Tree:
    """Grow the tree from candidates per depth (best first) and a score of rank tuples (larger is better)."""
    out = Tree([], [], [])
    if budget <= 0 or not tokens:
        return out
    heap: list[tuple[Any, tuple[int, ...], int]] = [(-score((0,)), (0,), 0)]
    while heap and len(out.tokens) < budget:
        _, ranks, parent = heapq.heappop(heap)
        depth, rank = len(ranks), ranks[-1]
        out.tokens.append(tokens[depth - 1][rank])
        out.parents.append(parent)
        out.depths.append(depth)
        if rank + 1 < len(tokens[depth - 1]):
            sibling = (*ranks[:-1], rank + 1)
            heapq.heappush(heap, (-score(sibling), sibling, parent))
        if depth < len(tokens):
            child = (*ranks, 0)
            heapq.heappush(heap, (-score(child), child, len(out.tokens)))
    return out


def build_tree(logits: Tensor, budget: int) -> Tree:
    """The tree for raw logits [D, vocab] of one block; refuses NaN, which would give a tree of noise."""
    if torch.isnan(logits).any() or torch.isposinf(logits).any():
        raise Refused("the drafter's logits are not finite", "check its weights and dtype")
    if budget <= 0:
        return Tree([], [], [])
    wide = logits if logits.dtype == torch.float64 else logits.float()
    log_probabilities = torch.log_softmax(wide, dim=-1)
    ids, values = best_tokens(log_probabilities, min(budget, logits.shape[-1]))
    rows: list[list[float]] = values.double().tolist()

    def score(ranks: tuple[int, ...]) -> float:
        # Summed afresh: an incremental update meets inf - inf. Rounded, so that products which are
        # equal on paper tie, whatever the order of their factors did to the last bit.
        return round(math.fsum(row[rank] for row, rank in zip(rows, ranks, strict=False)), 9)

    return grow(ids.tolist(), score, budget)
