"""An evaluation's screen begins with a conclusion, and never calls better what chance would do."""

from __future__ import annotations

from typing import Any

import pytest

from hostkit.report.evaluation_rows import screen_of


def difference(outcome: str) -> dict[str, Any]:
    item = {"reference": 5.2, "other": 5.0, "difference": -0.2, "interval": [-0.8, 0.4], "prompts": 6}
    return {"accept_len": item | {"words": outcome}}


def comparison(**changes: Any) -> dict[str, Any]:
    base = {"label": "step 100", "verdict": "comparable", "reasons": [], "conflict": None, "caveats": []}
    return base | {"differences": difference("no significant difference")} | changes


def document(compared: dict[str, Any] | None) -> dict[str, Any]:
    state = {"verdict": "RUNNING", "exit": 0, "step": {"live": 120}}
    return {
        "eval": "drafter", "run": "drafter", "sample": "full", "reused": False, "archive": "/a", "by_domain": {},
        "checkpoint": {"step": 110, "path": "/c"}, "caveats": [], "comparison": compared,
        "training": {"before": state, "after": state, "same_process": True, "words": []},
        "result": {
            "settings": {"block_size": 16, "seed": 0, "dtype": "float32"},
            "coverage": {"blocks": 12, "prompts_done": 6, "prompts_asked": 6, "by_domain": {}},
            "metrics": {"accept_rate@1": {"mean": 0.5, "n": 1}, "accept_len": {"mean": 5.0, "n": 12}},
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    ("compared", "label", "text"),
    [
        (None, "FIRST RESULT", "nothing to compare with yet"),
        (comparison(), "NO SIGNIFICANT DIFFERENCE", "accept_len -0.20, 95 % [-0.80, 0.40]"),
        (comparison(differences=difference("worse")), "WORSE", "against step 100"),
        (comparison(reasons=["target differs"]), "NOT COMPARABLE", "target differs"),
        (comparison(conflict="one checkpoint, yet"), "CONFLICT", "one checkpoint, yet"),
        (comparison(differences={}), "NOT COMPARED", "accept_len is not in both"),
    ],
)
def test_the_conclusion_comes_first(compared: dict[str, Any] | None, label: str, text: str) -> None:
    screen = screen_of(document(compared))
    assert screen.conclusion.label == label and text in screen.conclusion.text
    assert [metric.name for metric in screen.metrics] == ["accept_len"]
