"""No line of evidence contradicts its verdict, whatever is read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostkit.inventory.models import Run
from hostkit.liveness.judge import judge
from hostkit.liveness.past import Past, PastObservation
from hostkit.liveness.readings import Reading
from hostkit.liveness.verdict import Verdict

BASE = json.loads((Path(__file__).parent / "base.json").read_text())
NOW = BASE["reading"]["clock"]["wall"]
UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86400}
AGE = r"((?:[\d.]+ (?:s|min|h|d) ?)+)"
TAILS = (
    "",
    "compiling\n",
    "step 7 loss 2.0\n",
    "loss 3\n",
    "step 7 loss nan\n",
    "step 563000 loss 1\n",
    "done\n",
)

seconds = st.one_of(st.sampled_from([0.0, 3.0, 10.0, 59.9, 600.0, 900.0, 1800.0]), st.floats(0, 20_000))
limits = st.sampled_from([5.0, 10.0, 60.0, 900.0, 1200.0, 1800.0])


def parsed(text: str) -> float:
    words = text.split()
    return sum(float(number) * UNITS[unit] for number, unit in zip(words[::2], words[1::2], strict=True))


@st.composite
def situations(draw: st.DrawFn) -> tuple[Run, Reading, Past]:
    life = draw(seconds)
    startup, stall = draw(limits), draw(limits)
    run = Run.model_validate({**BASE["run"], "log": {"path": "/w/train.log", "finished": "done"}})
    run = run.model_copy(
        update={"timeouts": run.timeouts.model_copy(update={"startup": startup, "stall": stall})}
    )
    facts = BASE["reading"]["run"]
    process = {**facts["processes"][0], "start_ticks": 100_000_000 - int(life * 100)}
    process["state"] = draw(st.sampled_from("RSDT"))
    log: dict[str, Any] = {
        "path": "/w/train.log",
        "from": "inventory",
        "error": "No such file",
        "missing": True,
    }
    if draw(st.booleans()):
        log = {**facts["log"], "mtime": NOW - draw(seconds), "tail": draw(st.sampled_from(TAILS))}
    saved = [{**one, "mtime_ns": int((NOW - draw(seconds)) * 1e9)} for one in facts["checkpoints"]["found"]]
    checkpoints = {**facts["checkpoints"], "found": draw(st.sampled_from([[], saved]))}
    reading = Reading.model_validate(
        {
            **BASE["reading"],
            "run": {
                **facts,
                "processes": draw(st.sampled_from([[process], [process], []])),
                "log": log,
                "checkpoints": checkpoints,
            },
        }
    )
    past = Past()
    if reading.run.processes and draw(st.booleans()):
        identity = reading.identity(reading.run.processes[0])
        ago = draw(seconds)
        facts_then = {"identity": identity, "boot": 1_000_000 - ago, "step": draw(st.integers(0, 8))}
        past = Past((PastObservation(at=NOW - ago, verdict="RUNNING", since=0, **facts_then),))
    return run, reading, past


@settings(max_examples=600, deadline=None)
@given(situations())
def test_no_line_of_evidence_contradicts_its_verdict(situation: tuple[Run, Reading, Past]) -> None:
    run, reading, past = situation
    judgement = judge(run, reading, past, here=NOW)
    text = "\n".join(judgement.evidence)
    moved = re.findall(rf"moved {AGE}ago \(limit {AGE}\)", text)
    still = re.findall(rf"(?:nothing has moved for|silent for|is) {AGE}(?:old )?\(limit {AGE}\)", text)
    if judgement.verdict in (Verdict.STALLED, Verdict.DEAD):
        assert all(parsed(old) >= parsed(limit) for old, limit in still), text
        assert still or "(state T)" in text, text
    else:
        assert not still, text
    if judgement.verdict == Verdict.RUNNING:
        assert moved, text
        assert all(parsed(old) <= parsed(limit) for old, limit in moved), text
    if judgement.verdict == Verdict.STARTING:
        assert judgement.progress.live is None, text
    if found := re.search(rf"until {AGE}after its start", text):
        life = reading.age(reading.run.processes[0])
        assert life <= run.timeouts.startup <= parsed(found[1]) + 1, text


@pytest.mark.parametrize(("startup", "stall"), [("5s", "20m"), ("5s", "15m")])
def test_a_run_of_ten_seconds_is_not_called_stalled_by_a_limit_of_minutes(startup: str, stall: str) -> None:
    run = Run.model_validate({**BASE["run"], "timeouts": {"startup": startup, "stall": stall}})
    facts = BASE["reading"]["run"]
    process = {**facts["processes"][0], "start_ticks": 100_000_000 - 1000}
    log = {"path": "/workspace/train.log", "from": "inventory", "error": "No such file", "missing": True}
    young = {**facts, "processes": [process], "log": log, "checkpoints": {}}
    judgement = judge(run, Reading.model_validate({**BASE["reading"], "run": young}))
    assert (judgement.verdict, judgement.exit) == (Verdict.STARTING, 1)
    assert [finding.kind for finding in judgement.findings] == ["first-step-overdue"]
    assert judgement.findings[0].text == "no step yet, 10 s after its start (startup is 5 s)"
