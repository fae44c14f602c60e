"""Every situation under cases/ gives its verdict: a new situation is a new file."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hostkit.inventory.models import Run
from hostkit.liveness.judge import Judgement, judge
from hostkit.liveness.past import Past, PastObservation
from hostkit.liveness.readings import Reading
from hostkit.liveness.status import HopStatus, TrainStatus, status_of
from hostkit.report.status import show

HERE = Path(__file__).parent
BASE = json.loads((HERE / "base.json").read_text())
CASES = sorted((HERE / "cases").glob("*.json"))


def marked(path: Path) -> Any:
    """Return a case as a test's parameter, with the field report that it retells."""
    report = json.loads(path.read_text()).get("report")
    return pytest.param(path, id=path.stem, marks=[pytest.mark.report(report)] if report else [])


EACH = [marked(path) for path in CASES]


def merge(base: Any, change: Any) -> Any:
    """Lay a case's own facts over the healthy run of base.json; lists and nulls replace."""
    if not (isinstance(base, dict) and isinstance(change, dict)):
        return change
    return {**base, **{key: merge(base.get(key), value) for key, value in change.items()}}


def told(path: Path) -> tuple[dict[str, Any], Judgement, TrainStatus]:
    case = merge(BASE, json.loads(path.read_text()))
    run, reading = Run.model_validate(case["run"]), Reading.model_validate(case["reading"])
    past = Past((PastObservation.model_validate(case["previous"]),)) if case["previous"] else Past()
    judgement = judge(run, reading, past, here=case["here"], here_within=case["here_within"])
    now = PastObservation(at=case["here"], verdict=judgement.verdict, since=case["here"])
    hops = [HopStatus(name="ct200", kind="pct", state="ok")]
    return case["expect"], judgement, status_of("drafter", run, reading, judgement, now, hops=hops, lines=12)


@pytest.mark.parametrize("path", EACH)
def test_the_verdict_its_exit_code_and_its_evidence_are_those_expected(path: Path) -> None:
    expect, judgement, _ = told(path)
    assert (judgement.verdict, judgement.exit) == (expect["verdict"], expect["exit"]), judgement.evidence
    evidence = "\n".join(judgement.evidence)
    for words in expect["evidence"]:
        assert words in evidence
    for words in expect.get("not_evidence", ()):
        assert words not in evidence


@pytest.mark.parametrize("path", EACH)
def test_the_findings_and_figures_are_those_expected(path: Path) -> None:
    expect, judgement, status = told(path)
    assert sorted(finding.kind for finding in judgement.findings) == sorted(expect["findings"])
    for words in expect.get("finding_words", ()):
        assert any(words in finding.text for finding in judgement.findings)
    for key, value in expect.get("step", {}).items():
        exact = not isinstance(value, float)
        assert getattr(status.step, key) == (value if exact else pytest.approx(value, rel=2e-3)), key
    if "earlier" in expect:
        assert [one.step for one in status.checkpoints if one.attempt == "earlier"] == expect["earlier"]
    if "processes" in expect:
        assert [one.pid for one in status.processes] == expect["processes"]
    if "namespace" in expect:
        assert {one.namespace for one in status.processes} == {expect["namespace"]}
    if isinstance(expect.get("lines"), list):
        assert status.log.lines == expect["lines"]
    if isinstance(expect.get("lines"), int):
        assert len(status.log.lines) == expect["lines"]
    assert all(len(line) < expect.get("lines_below", 500) for line in status.log.lines)
    json.dumps(status.document(), allow_nan=False)


def test_a_run_without_a_process_is_never_well_unless_it_finished() -> None:
    for path in CASES:
        expect, judgement, _ = told(path)
        if not judgement.processes:
            assert expect["verdict"] in ("DEAD", "UNKNOWN", "FINISHED"), path.stem


def test_each_case_says_which_situation_it_is() -> None:
    titles = [json.loads(path.read_text())["title"] for path in CASES]
    assert len(set(titles)) == len(titles) >= 40


def test_every_situation_can_be_shown_on_eighty_columns() -> None:
    for path in CASES:
        plain: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False, "color_system": None}
        console = Console(file=io.StringIO(), width=80, force_terminal=True, **plain)
        _, judgement, status = told(path)
        show(console, status)
        assert isinstance(console.file, io.StringIO)
        page = console.file.getvalue()
        assert page.startswith(judgement.verdict), path.stem
        assert max(map(len, page.splitlines())) <= 80, path.stem
