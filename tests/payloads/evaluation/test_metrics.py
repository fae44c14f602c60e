"""Lengths, ranks and trees equal brute force on random distributions, ties included."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash.errors import Refused
from dflash.evaluation.ddtree import Tree, build_tree, grow
from dflash.evaluation.metrics import (
    best_tokens,
    coverage_streak,
    distinct_ngram_rate,
    per_position,
    rank_exactly,
    ranks_of,
    simulate_loop,
    streak,
)

# Few distinct weights, so that ties are common.
weights = st.integers(0, 4)


@st.composite
def blocks(draw: st.DrawFn) -> tuple[list[list[Fraction]], list[int]]:
    """Marginals [D][V] as fractions, and the target's tokens."""
    depth, vocab = draw(st.integers(1, 4)), draw(st.integers(2, 4))
    rows = []
    for _ in range(depth):
        row = draw(st.lists(weights, min_size=vocab, max_size=vocab).filter(any))
        rows.append([Fraction(w, sum(row)) for w in row])
    labels = draw(st.lists(st.integers(0, vocab - 1), min_size=depth, max_size=depth))
    return rows, labels


def best_prefixes(rows: list[list[Fraction]], budget: int) -> list[tuple[int, ...]]:
    """Every prefix, sorted by (probability, ranks): no heap."""
    order = [rank_exactly(row) for row in rows]
    every = []
    for depth in range(1, len(rows) + 1):
        for ranks in itertools.product(range(len(rows[0])), repeat=depth):
            mass = math.prod((rows[d][order[d][r]] for d, r in enumerate(ranks)), start=Fraction(1))
            every.append((-mass, ranks, tuple(order[d][r] for d, r in enumerate(ranks))))
    return [tokens for _, _, tokens in sorted(every)[:budget]]


def logits_of(rows: list[list[Fraction]]) -> torch.Tensor:
    return torch.tensor([[float(p) for p in row] for row in rows], dtype=torch.float64).log()


@settings(max_examples=200, deadline=None)
@given(blocks(), st.integers(0, 40))
def test_the_tree_is_the_most_probable_prefixes(block: tuple, budget: int) -> None:
    rows, _ = block
    order = [rank_exactly(row) for row in rows]

    def mass(ranks: tuple[int, ...]) -> Fraction:
        return math.prod((rows[d][order[d][r]] for d, r in enumerate(ranks)), start=Fraction(1))

    assert grow(order, mass, budget).prefixes() == best_prefixes(rows, budget)


@settings(max_examples=200, deadline=None)
@given(blocks(), st.integers(1, 40))
def test_the_tree_of_logits_holds_the_same_probability(block: tuple, budget: int) -> None:
    rows, _ = block
    tree = build_tree(logits_of(rows), budget)
    assert tree.prefixes() == best_prefixes(rows, budget)


@settings(max_examples=200, deadline=None)
@given(blocks())
def test_lengths_keep_their_order(block: tuple) -> None:
    rows, labels = block
    logits = logits_of(rows)
    ranks = ranks_of(logits, torch.tensor(labels)).tolist()
    assert ranks == [rank_exactly(row).index(label) for row, label in zip(rows, labels, strict=True)]
    depth = len(rows)
    chain, top4, top8 = (coverage_streak(ranks, k) for k in (1, 4, 8))
    assert 0 <= chain <= top4 <= top8 <= depth
    budgets = [1, 2, 3, 5, 8, 13, 100]
    accepted = build_tree(logits, 100).accepted(labels, budgets)
    assert list(accepted.values()) == sorted(accepted.values())
    for budget, length in accepted.items():
        assert length <= min(budget, depth)
        assert length <= coverage_streak(ranks, budget)
        # One tree for all budgets gives what each budget's own tree gives.
        assert length == len(build_tree(logits, budget).walk(labels))
    assert accepted[100] == depth or len(rows[0]) ** depth > 30


def test_a_chain_needs_as_many_nodes_as_it_is_deep() -> None:
    logits = torch.full((5, 10), -20.0)
    logits[:, 3] = 5.0
    assert build_tree(logits, 5).accepted([3] * 5, [1, 4, 5]) == {1: 1, 4: 4, 5: 5}


def test_parents_come_before_children_and_depths_fit() -> None:
    tree = build_tree(torch.randn(7, 50, generator=torch.Generator().manual_seed(0)), 64)
    for number, (parent, depth) in enumerate(zip(tree.parents, tree.depths, strict=True), 1):
        assert parent < number
        assert depth == (1 if parent == 0 else tree.depths[parent - 1] + 1)
    assert len(set(tree.prefixes())) == 64


def test_fewer_prefixes_than_the_budget_are_all_kept() -> None:
    assert len(build_tree(torch.zeros(2, 2), 99).tokens) == 6


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_give_no_tree(bad: float) -> None:
    logits = torch.zeros(3, 5)
    logits[1, 2] = bad
    with pytest.raises(Refused, match="not finite"):
        build_tree(logits, 4)


def test_an_impossible_token_does_not_disturb_the_order() -> None:
    logits = torch.tensor([[0.0, float("-inf"), 1.0], [2.0, 0.0, float("-inf")]])
    tree = build_tree(logits, 12)
    assert tree.prefixes()[:2] == [(2,), (2, 0)]
    assert len(tree.tokens) == 12


def test_no_budget_is_no_tree() -> None:
    assert build_tree(torch.zeros(3, 4), 0) == Tree([], [], [])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(weights, min_size=6, max_size=6), min_size=1, max_size=4), st.integers(1, 6))
def test_best_tokens_break_ties_by_id(rows: list, k: int) -> None:
    ids, values = best_tokens(torch.tensor(rows, dtype=torch.float32), k)
    wanted = [sorted(range(6), key=lambda t, row=row: (-row[t], t))[:k] for row in rows]
    assert ids.tolist() == wanted
    assert values.tolist() == [[row[t] for t in best] for row, best in zip(rows, wanted, strict=True)]


def test_ties_over_a_large_vocabulary_still_take_the_smallest_ids() -> None:
    scores = torch.zeros(2, 5000)
    scores[0, 4000] = 1.0
    ids, _ = best_tokens(scores, 4)
    assert ids.tolist() == [[4000, 0, 1, 2], [0, 1, 2, 3]]


def test_a_later_hit_does_not_count_after_a_miss() -> None:
    assert streak([True, True, False, True]) == 2
    assert streak([]) == 0


def test_the_loop_goes_on_where_a_round_ended() -> None:
    assert simulate_loop({10: 2, 13: 0, 14: 5}, first=10, last=15) == [3, 1, 6]


def test_positions_count_all_blocks_and_those_still_alive() -> None:
    rows = [[1, 1, 0], [0, 1, 1], [1, 0, 1]]
    got = per_position([streak(r) for r in rows], rows, 3)
    assert got["hits"] == [2, 2, 2]
    assert got["streak_at_least"] == [2, 1, 0]
    assert got["accept_rate"] == [2 / 3, 1 / 3, 0]
    assert got["cond_accept_rate"] == [2 / 3, 1 / 2, 0]


def test_a_looping_text_has_few_distinct_ngrams() -> None:
    assert distinct_ngram_rate([1, 2] * 50) == pytest.approx(2 / 93)
    assert distinct_ngram_rate(list(range(100))) == 1.0
    assert distinct_ngram_rate([1, 2, 3]) is None
