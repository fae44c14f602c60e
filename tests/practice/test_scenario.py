"""The tour passes only when every one of its claims holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hostkit.practice.root import Root
from hostkit.practice.scenario import document, tour

IDENTITY = {"boot_id": "b", "pid_ns": 1, "pid": 7, "start_ticks": 70, "init_start_ticks": 1}


def status(verdict: str = "RUNNING", step: int | None = 100, ticks: int = 70, **more: Any) -> dict[str, Any]:
    processes = [{"identity": IDENTITY | {"start_ticks": ticks}}]
    return {"verdict": verdict, "step": {"live": step}, "processes": processes} | more


RESULT = {"metrics": {"accept_len": {"mean": 2.5}}, "checkpoint": {"step": 100}}


class ScriptedLaptop:
    """Answers as it is told to; files the result when the evaluation is run."""

    def __init__(self, root: Root, before: Any, after: Any, exits: dict[str, int], result: Any) -> None:
        self._root = root
        self._answers = [before, after]
        self._exits = exits
        self._result = result
        self.ran: list[str] = []

    def run(self, *words: str) -> int:
        self.ran.append(words[0])
        if words[0] == "eval-latest" and self._result is not None:
            folder = self._root.archive / "drafter/step_100_20261130T100000Z_00000000"
            folder.mkdir(parents=True)
            (folder / "result.json").write_text(json.dumps(self._result))
        return self._exits.get(words[0], 0)

    def ask(self, *words: str) -> dict[str, Any]:
        return self._answers.pop(0)


class SilentOutput:
    def heading(self, text: str) -> None: ...

    def say(self, text: str) -> None: ...

    def command(self, words: list[str]) -> None: ...

    def check(self, what: str, passed: bool, found: str) -> None: ...


def told(
    tmp_path: Path,
    before: Any = None,
    after: Any = None,
    exits: dict[str, int] | None = None,
    result: Any = RESULT,
) -> dict[str, Any]:
    root = Root(tmp_path)
    laptop = ScriptedLaptop(root, before or status(), after or status(step=150), exits or {}, result)
    checks = tour(root, SilentOutput(), laptop)
    assert laptop.ran == ["train-status", "eval-latest", "train-status"]
    return document(root, checks, kept=False)


def test_a_tour_on_which_all_holds_passes(tmp_path: Path) -> None:
    found = told(tmp_path)
    assert found["passed"] is True
    assert len(found["checks"]) == 6


@pytest.mark.parametrize(
    ("case", "failed"),
    [
        ({"before": status("STARTING")}, "the training is RUNNING"),
        ({"exits": {"train-status": 1}}, "the training is RUNNING"),
        ({"exits": {"eval-latest": 1}}, "the evaluation worked"),
        ({"result": None}, "a result with accept_len is in the archive"),
        (
            {"result": {"metrics": {}, "checkpoint": {"step": 1}}},
            "a result with accept_len is in the archive",
        ),
        ({"after": status("DEAD", processes=[])}, "it is the same process"),
        ({"after": status("SLOW", step=150)}, "the training is still RUNNING"),
        ({"after": status(step=150, ticks=71)}, "it is the same process"),
        ({"after": status(step=100)}, "it has gone on stepping"),
        ({"after": status(step=None)}, "it has gone on stepping"),
        ({"before": {"schema": "hostkit.error/1", "what": "no inventory"}}, "the training is RUNNING"),
    ],
)
def test_a_tour_on_which_one_thing_does_not_hold_fails_and_names_it(
    tmp_path: Path, case: dict[str, Any], failed: str
) -> None:
    found = told(tmp_path, **case)
    assert found["passed"] is False
    assert failed in [check["what"] for check in found["checks"] if not check["passed"]]
