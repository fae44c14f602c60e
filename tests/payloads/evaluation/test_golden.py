"""The payload's metrics equal the golden values exactly, and the check notices when they do not."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import check_golden
from dflash.evaluation.metrics import rank_exactly
from tests.payloads.conftest import DATA, PAYLOADS

from .test_metrics import best_prefixes, blocks


def check(file: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    status = check_golden.main([str(file)])
    return status, capsys.readouterr().out


def test_the_golden_file_comes_out_exactly() -> None:
    """As a user runs it: a script in its own process."""
    argv = [sys.executable, str(PAYLOADS / "check_golden.py"), str(DATA / "dflash_golden.json")]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "25 parts, 0 differ" in done.stdout


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("cases", 0, "vanilla_streak"), 2),
        (("cases", 2, "topk_streak", "3"), 3),
        (("cases", 5, "tree", "3", "prefixes"), [[1], [0], [0, 0]]),
        (("cases", 3, "tree", "8", "accepted"), 3),
        (("loss_weights", 0, "weights", 3), 0.75),
        (("target_layer_ids", 0, "ids", 1), 8),
    ],
)
def test_a_changed_golden_value_is_a_difference(
    path: tuple, value: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads((DATA / "dflash_golden.json").read_text())
    at = document
    for key in path[:-1]:
        at = at[key]
    assert at[path[-1]] != value
    at[path[-1]] = value
    file = tmp_path / "changed.json"
    file.write_text(json.dumps(document))
    status, said = check(file, capsys)
    assert status == 1
    assert "1 differ" in said


def test_two_parts_of_one_name_are_both_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads((DATA / "dflash_golden.json").read_text())
    wrong = {**document["cases"][0], "vanilla_tau": 9}
    file = tmp_path / "twice.json"
    file.write_text(json.dumps({"cases": [wrong, document["cases"][0]]}))
    assert check(file, capsys) == (
        1,
        "DIFFERS g01_all_correct\n        vanilla_tau: 4 for 9\nok      g01_all_correct\n2 parts, 1 differ\n",
    )


def golden(rows: list[list[Fraction]], labels: list[int], budgets: list[int]) -> dict[str, Any]:
    """A case as the file has them, by listing every prefix."""
    ranks = [rank_exactly(row).index(y) for row, y in zip(rows, labels, strict=True)]
    hits = [int(rank == 0) for rank in ranks]

    def leading(k: int) -> int:
        return next((i for i, rank in enumerate(ranks) if rank >= k), len(ranks))

    trees = {}
    for budget in budgets:
        kept = best_prefixes(rows, budget)
        depth = next((i for i in range(len(labels)) if tuple(labels[: i + 1]) not in kept), len(labels))
        total = sum(
            (math.prod((rows[d][t] for d, t in enumerate(p)), start=Fraction(1)) for p in kept), Fraction(0)
        )
        trees[str(budget)] = {
            "nodes": len(kept),
            "accepted": depth,
            "tau": depth + 1,
            "depth": max(map(len, kept), default=0),
            "expected_accepted_under_q": str(total),
            "prefixes": [list(p) for p in kept] if len(kept) <= 16 else None,
        }
    return {
        "name": "drawn",
        "block_size": len(rows) + 1,
        "q": [[str(p) for p in row] for row in rows],
        "target": labels,
        "target_ranks": ranks,
        "hit_per_position": hits,
        "vanilla_streak": leading(1),
        "vanilla_tau": leading(1) + 1,
        "topk_streak": {str(k): leading(k) for k in (1, 2, 4, 8)},
        "tree": trees,
    }


@settings(max_examples=120, deadline=None)
@given(blocks(), st.lists(st.sampled_from([0, 1, 2, 3, 7, 30, 400]), unique=True))
def test_any_distributions_come_out_as_by_listing_every_prefix(block: tuple, budgets: list[int]) -> None:
    """Ties, zeros, budgets beyond the tree, vocabularies smaller than k."""
    case = golden(*block, budgets)
    assert check_golden.check({"cases": [case]}) == [("drawn", [])]


def test_prefixes_closer_than_floating_point_can_tell_are_no_difference() -> None:
    big = 10**15
    rows = [
        [Fraction(big, 2 * big - 1), Fraction(big - 1, 2 * big - 1)],
        [Fraction(big - 1, big), Fraction(1, big)],
    ]
    assert check_golden.check({"cases": [golden(rows, [1, 0], [1, 2, 3, 4])]}) == [("drawn", [])]


@pytest.mark.parametrize(
    "field", ["nodes", "accepted", "tau", "depth", "expected_accepted_under_q", "prefixes"]
)
def test_each_figure_of_a_tree_is_compared(field: str) -> None:
    case = golden([[Fraction(3, 4), Fraction(1, 4)]] * 2, [0, 1], [3])
    case["tree"]["3"][field] = [[9]] if field == "prefixes" else "9"
    ((_, faults),) = check_golden.check({"cases": [case]})
    assert len(faults) == 1
    assert field in faults[0]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{}", "no golden values"),
        ("[]", "no golden values"),
        ('{"cases": []}', "nothing that can be checked"),
        ('{"cases": {}}', "cases is not a list"),
        ('{"cases": [3]}', "cases[0]"),
        ('{"cases": [{"name": "x"}]}', "cases[0]: 'q' is missing"),
        ('{"cases": [{"name": "x", "q": [["1/2", "1/3"]], "target": [0]}]}', "cases[0]: q of slot 1"),
        ('{"cases": [{"name": "x", "q": [["1/0"]], "target": [0]}]}', "cases[0]"),
        ('{"cases": [{"name": "x", "q": [["1"]], "target": [4]}]}', "cases[0]"),
        ('{"cases": [{"name": "x", "q": [["1"]], "target": [0, 0]}]}', "cases[0]"),
        ('{"cases": [{"name": "x", "q": [["a"]], "target": [0]}]}', "cases[0]"),
        ('{"loss_weights": [{"block_size": 8}]}', "loss_weights[0]: 'gamma' is missing"),
        ('{"cases": [', "cannot be checked"),
        ("[" * 100_000, "cannot be checked"),
        ("\udcff", "cannot be checked"),
    ],
)
def test_a_file_of_another_kind_is_one_line_that_says_where(
    text: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "other.json"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert check_golden.main([str(file)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert named in said.err
    assert said.err.count("\n") == 1


def test_a_file_that_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_golden.main([str(tmp_path / "none.json")]) == 2
    assert "No such file" in capsys.readouterr().err
