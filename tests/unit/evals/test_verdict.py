"""The exit code of an evaluation is 1 when something about it is bad, and the document says what."""

from __future__ import annotations

from pathlib import Path

import pytest

from hostkit.evals.archive import Entry
from hostkit.evals.document import document

from .samples import result
from .test_training import status

LENGTHS = {f"p{i}": [3, 4] for i in range(6)}


def made(found, *, before=None, after=None, **more):
    return document(
        "drafter", "drafter", Entry(Path("/archive/x"), found), None, candidate={"step": 80, "path": "/c"},
        sample="full", before=before or status(), after=after or status(live=140), steps=[], notes=["a note"],
        reused=False, **{"ignore_run": False, **more},
    )  # fmt: skip


def test_a_good_evaluation_beside_a_good_run_is_exit_0():
    found = made(result(LENGTHS))
    assert (found["exit"], found["bad"]) == (0, [])
    assert found["schema"] == "hostkit.eval-latest/1"
    assert found["by_domain"]["code"]["accept_len"] == 3.5
    assert "a note" in found["caveats"]
    assert any("60 steps" in caveat for caveat in found["caveats"])


@pytest.mark.parametrize(
    ("found", "more", "word"),
    [
        (result(LENGTHS, coverage__prompts_asked=9), {}, "partial: 6 of 9"),
        (result(LENGTHS, status="partial"), {}, "partial"),
        (
            result(LENGTHS, target_agreement={"agree": 1, "of": 2, "rate": 0.5, "passed": False}),
            {},
            "does not agree",
        ),
        (result(LENGTHS), {"before": status(verdict="STALLED", exit=2)}, "STALLED before"),
        (result(LENGTHS), {"after": status(verdict="UNKNOWN", exit=3)}, "UNKNOWN after"),
        (result(LENGTHS), {"after": status(start_ticks=10, live=140)}, "another one"),
    ],
)
def test_what_is_bad_is_named_and_exit_1(found, more, word):
    shown = made(found, **more)
    assert shown["exit"] == 1
    assert any(word in words for words in shown["bad"])


def test_the_runs_state_does_not_count_when_it_is_to_be_ignored():
    assert (
        made(result(LENGTHS), after=status(verdict="DEAD", exit=2, processes=[]), ignore_run=True)["exit"]
        == 0
    )
