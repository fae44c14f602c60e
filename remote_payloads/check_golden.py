#!/usr/bin/env python3
"""Check a file of golden metric values through the payload's own code: `check_golden.py FILE`.

Fractions stay fractions, so that ties are exact. Prints a line per part; exits 1 when anything differs.
"""

from __future__ import annotations

import json
import math
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "dflash"))

from blocks import loss_weights
from ddtree import build_tree, grow
from draft_config import spread_taps
from metrics import coverage_streak, rank_exactly, streak


def case_faults(case: dict[str, Any]) -> list[str]:
    """Differences of one case; the tree is built twice, from fractions and as logits in floating point."""
    import torch

    rows = [[Fraction(p) for p in row] for row in case["q"]]
    labels = case["target"]
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
    logits = torch.tensor([[float(p) for p in row] for row in rows], dtype=torch.float64).log()
    for budget, wanted in case["tree"].items():

        def mass(picked: tuple[int, ...]) -> Fraction:
            return math.prod((rows[d][order[d][r]] for d, r in enumerate(picked)), start=Fraction(1))

        width = min(int(budget), len(rows[0]))
        exact = grow([o[:width] for o in order], mass, int(budget))
        for name, tree in (("exact", exact), ("float", build_tree(logits, int(budget)))):
            faults += [f"tree {budget} ({name}): {f}" for f in tree_faults(tree, wanted, labels, rows)]
    return faults


def tree_faults(
    tree: Any, wanted: dict[str, Any], labels: list[int], rows: list[list[Fraction]]
) -> list[str]:
    """Differences of one tree."""
    prefixes = tree.prefixes()
    total = sum(
        (math.prod((rows[d][t] for d, t in enumerate(p)), start=Fraction(1)) for p in prefixes),
        start=Fraction(0),
    )
    accepted = len(tree.walk(labels))
    got = {
        "nodes": len(prefixes),
        "accepted": accepted,
        "tau": accepted + 1,
        "depth": max(tree.depths, default=0),
        "expected_accepted_under_q": str(total),
        "prefixes": [list(p) for p in prefixes],
    }
    return [
        f"{k}: {v} for {wanted[k]}" for k, v in got.items() if wanted.get(k) is not None and v != wanted[k]
    ]


def check(document: dict[str, Any]) -> dict[str, list[str]]:
    """Differences by part of the file."""
    parts = {case["name"]: case_faults(case) for case in document.get("cases", [])}
    for row in document.get("loss_weights", []):
        got = [round(w, 12) for w in loss_weights(row["block_size"], row["gamma"])]
        parts[f"loss_weights {row['block_size']}"] = [] if got == row["weights"] else [f"{got}"]
    for row in document.get("target_layer_ids", []):
        taps = list(spread_taps(row["num_target_layers"], row["taps"]))
        good = taps == row["ids"] and [t + 1 for t in taps] == row["hf_hidden_states_index"]
        parts[f"target_layer_ids {row['num_target_layers']}/{row['taps']}"] = [] if good else [f"{taps}"]
    for row in document.get("story_table", []):
        again = [f"{total / row['blocks']:.3f}" for total in row["implied_sum"]]
        parts[f"story_table {row['run']}"] = [] if again == row["reprinted"] else [f"{again}"]
    return parts


def main(argv: list[str]) -> int:
    """Check the file named on the command line."""
    if len(argv) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        parts = check(json.loads(Path(argv[0]).read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError) as error:
        print(f"{argv[0]}: cannot be checked: {error!r}", file=sys.stderr)
        return 2
    for name, faults in parts.items():
        print(f"{'DIFFERS' if faults else 'ok':8}{name}")
        for fault in faults:
            print(f"        {fault}")
    bad = sum(bool(faults) for faults in parts.values())
    print(f"{len(parts)} parts, {bad} differ" if parts else "the file holds nothing that can be checked")
    return 1 if bad or not parts else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
