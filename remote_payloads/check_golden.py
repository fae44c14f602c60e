#!/usr/bin/env python3
"""Check a file of golden metric values through the payload's own code: `check_golden.py FILE`.

Fractions stay fractions, so that ties are exact. Prints a line per part. Exit status: 0 when all are equal, 1 when
anything differs, 2 when the file is not one of golden values (what and where is said on stderr).
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

from dflash.drafter.config import spread_taps
from dflash.errors import Refused
from dflash.evaluation.ddtree import build_tree, grow
from dflash.evaluation.metrics import coverage_streak, rank_exactly, streak
from dflash.training.blocks import loss_weights

# Below this relative gap, floating point may order two prefixes the other way round.
NEAR = Fraction(1, 10**8)


def case_faults(case: dict[str, Any]) -> list[str]:
    """Differences of one case; the tree is built twice, from fractions and as logits in floating point."""
    rows, labels = distributions(case), case["target"]
    order = [rank_exactly(row) for row in rows]
    ranks = [o.index(y) for o, y in zip(order, labels, strict=True)]
    hits = [int(rank == 0) for rank in ranks]
    got: dict[str, Any] = {
        "block_size": len(rows) + 1,
        "target_ranks": ranks,
        "hit_per_position": hits,
        "vanilla_streak": streak(hits),
        "vanilla_tau": streak(hits) + 1,
        "topk_streak": {k: coverage_streak(ranks, int(k)) for k in case["topk_streak"]},
    }
    faults = [f"{name}: {value} for {case[name]}" for name, value in got.items() if value != case[name]]
    for budget, wanted in case["tree"].items():
        faults += [f"tree {budget} {f}" for f in tree_faults(rows, order, labels, int(budget), wanted)]
    return faults


def distributions(case: dict[str, Any]) -> list[list[Fraction]]:
    """The marginals of a case; refuses what is no distribution."""
    rows = [[Fraction(p) for p in row] for row in case["q"]]
    for slot, row in enumerate(rows, 1):
        if len(row) != len(rows[0]) or sum(row) != 1 or min(row) < 0:
            raise Refused(f"q of slot {slot} is no distribution over {len(rows[0])} tokens")
    return rows


def tree_faults(
    rows: list[list[Fraction]],
    order: list[list[int]],
    labels: list[int],
    budget: int,
    wanted: dict[str, Any],
) -> list[str]:
    """Differences of the trees of one budget."""
    import torch

    def mass(picked: tuple[int, ...]) -> Fraction:
        return math.prod((rows[d][order[d][r]] for d, r in enumerate(picked)), start=Fraction(1))

    # One node more than the budget, to see how close the first one left out is.
    exact = grow([o[: budget + 1] for o in order], mass, budget + 1 if budget else 0)
    logits = torch.tensor([[float(p) for p in row] for row in rows], dtype=torch.float64).log()
    drafted = build_tree(logits, budget)
    masses = [probability(rows, p) for p in exact.prefixes()]
    exact = exact.truncate(budget)
    faults = [f"(exact): {f}" for f in differences(exact, wanted, labels, rows)]
    if drafted.prefixes() == exact.prefixes():
        return faults
    told_apart = all(a == b or b < a * (1 - NEAR) for a, b in itertools.pairwise(masses))
    theirs = [probability(rows, p) for p in drafted.prefixes()]
    if told_apart or not all(math.isclose(a, b, rel_tol=1e-7) for a, b in zip(theirs, masses, strict=False)):
        faults.append(f"(floating point): {drafted.prefixes()} for {exact.prefixes()}")
    return faults


def probability(rows: list[list[Fraction]], prefix: tuple[int, ...]) -> Fraction:
    """Of one prefix, exactly."""
    return math.prod((rows[d][t] for d, t in enumerate(prefix)), start=Fraction(1))


def differences(
    tree: Any, wanted: dict[str, Any], labels: list[int], rows: list[list[Fraction]]
) -> list[str]:
    """What of one tree is not as wanted; long lists of prefixes are left out of the file (null)."""
    prefixes = tree.prefixes()
    accepted = len(tree.walk(labels))
    total = sum((probability(rows, p) for p in prefixes), start=Fraction(0))
    got = {
        "nodes": len(prefixes),
        "accepted": accepted,
        "tau": accepted + 1,
        "depth": max(tree.depths, default=0),
        "expected_accepted_under_q": str(total),
    }
    if wanted["prefixes"] is not None:
        got["prefixes"] = [list(p) for p in prefixes]
    return [f"{name}: {value} for {wanted[name]}" for name, value in got.items() if value != wanted[name]]


def weight_faults(row: dict[str, Any]) -> list[str]:
    """Differences of a row of loss weights."""
    got = [round(w, 12) for w in loss_weights(row["block_size"], row["gamma"])]
    return [] if got == row["weights"] else [f"{got} for {row['weights']}"]


def tap_faults(row: dict[str, Any]) -> list[str]:
    """Differences of a row of default taps."""
    taps = list(spread_taps(row["num_target_layers"], row["taps"]))
    index = [t + 1 for t in taps]
    good = taps == row["ids"] and index == row["hf_hidden_states_index"]
    return [] if good else [f"{taps} and {index} for {row['ids']} and {row['hf_hidden_states_index']}"]


def story_faults(row: dict[str, Any]) -> list[str]:
    """Printed means are whole sums over blocks, and print as they were."""
    sums = [round(float(mean) * row["blocks"]) for mean in row["printed"]]
    again = [f"{total / row['blocks']:.3f}" for total in sums]
    good = sums == row["implied_sum"] and again == row["reprinted"]
    return [] if good else [f"{sums} and {again} for {row['implied_sum']} and {row['reprinted']}"]


PARTS: dict[str, tuple[Callable[[dict[str, Any]], str], Callable[[dict[str, Any]], list[str]]]] = {
    "cases": (lambda row: str(row["name"]), case_faults),
    "loss_weights": (lambda row: f"loss_weights {row['block_size']}", weight_faults),
    "target_layer_ids": (
        lambda row: f"target_layer_ids {row['num_target_layers']}/{row['taps']}",
        tap_faults,
    ),
    "story_table": (lambda row: f"story_table {row['run']}", story_faults),
}


def check(document: Any) -> list[tuple[str, list[str]]]:
    """Each part of the file with its differences; `Refused` names the place that cannot be read."""
    if not isinstance(document, dict) or not document.keys() & PARTS.keys():
        raise Refused(f"no golden values: none of {', '.join(PARTS)} at the top level")
    found = []
    for part, (name, faults) in PARTS.items():
        rows = document.get(part, [])
        if not isinstance(rows, list):
            raise Refused(f"{part} is not a list")
        for number, row in enumerate(rows):
            try:
                found.append((name(row), faults(row)))
            except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, IndexError) as error:
                what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
                raise Refused(f"{part}[{number}]: {what}") from None
            except Refused as error:
                raise Refused(f"{part}[{number}]: {error}") from None
    return found


def main(argv: list[str]) -> int:
    """Check the file named on the command line: 0 all equal, 1 a difference, 2 not a golden file."""
    if len(argv) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        parts = check(json.loads(Path(argv[0]).read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError, Refused) as error:
        print(f"{argv[0]}: cannot be checked: {error}", file=sys.stderr)
        return 2
    if not parts:
        print(f"{argv[0]}: holds nothing that can be checked: all its lists are empty", file=sys.stderr)
        return 2
    for name, faults in parts:
        print(f"{'DIFFERS' if faults else 'ok':8}{name}")
        for fault in faults:
            print(f"        {fault}")
    bad = sum(bool(faults) for _, faults in parts)
    print(f"{len(parts)} parts, {bad} differ")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
