"""The status page: verdict first, at any width, in plain text, whatever a log or an argv holds."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hostkit.inventory.models import Run
from hostkit.liveness.judge import judge
from hostkit.liveness.past import Before, PastObservation
from hostkit.liveness.readings import Reading
from hostkit.liveness.status import HopStatus, HostStatus, TrainStatus, status_of
from hostkit.liveness.verdict import Verdict
from hostkit.report.status import show
from hostkit.report.status_rows import Row, screen_of

CASES = Path(__file__).parents[1] / "liveness"
BASE = json.loads((CASES / "base.json").read_text())
HOSTILE = "\x1b]0;pwned\x07\x1b[2Jstep 1 [bold red]loud[/] [link=http://x]y[/link] \x9b31m \u202egnp.exe :smile: \r\x00"


def status(**change: Any) -> TrainStatus:
    run = Run.model_validate({**BASE["run"], "links": {"wandb": "https://wandb.ai/x/y/runs/fmtrd46n"}})
    facts = {**BASE["reading"]["run"], **change}
    reading = Reading.model_validate({**BASE["reading"], "run": facts})
    judgement = judge(run, reading, None, here=BASE["here"], here_within=0.1)
    at = BASE["here"]
    now = PastObservation(
        at=at, verdict=judgement.verdict, since=at - 7500, before=Before(verdict="STARTING", until=at - 7500)
    )
    return status_of("drafter", run, reading, judgement, now, hops=[], lines=12)


def page(found: TrainStatus, width: int = 80, **options: Any) -> str:
    console = Console(file=io.StringIO(), width=width, markup=False, emoji=False, highlight=False, **options)
    show(console, found)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_verdict_stands_first_in_words_with_since_when() -> None:
    first = page(status(), width=120).splitlines()[0]
    assert first.startswith(
        "RUNNING  drafter on ct200: alive and progressing  since 2027-01-15T05:55:00Z (2 h 5 min)"
    )
    assert first.endswith("before that STARTING")


def test_it_tells_evidence_step_rate_end_and_how_far_the_checkpoint_is_behind() -> None:
    text = " ".join(page(status()).split())
    assert "the log moved 4 s ago (limit 15 min)" in text
    assert "step 5296 of 563000 (0.9 %), loss 2.347" in text
    assert "4.00 steps/min" in text
    assert "ends in about 96 d 19 h" in text
    assert "saved step 4000, 5 h 24 min old, 3.8 GiB" in text
    assert "the run is 1296 steps ahead (24 %, 5 h 24 min)" in text
    assert "next save step 6000, in about 2 h 56 min" in text
    assert "wandb https://wandb.ai/x/y/runs/fmtrd46n" in text


def test_a_run_that_is_at_the_saved_step_is_said_to_be_there() -> None:
    found = status()
    at_it = found.model_copy(update={"step": found.step.model_copy(update={"lag": 0, "lag_percent": 0.0})})
    assert "3.8 GiB; the run is at that step next save" in " ".join(page(at_it).split())


def test_a_finding_says_what_to_do() -> None:
    checkpoints = {**BASE["reading"]["run"]["checkpoints"], "space": {"free": 1, "free_root": 1}}
    text = " ".join(page(status(checkpoints=checkpoints)).split())
    assert "critical the next save will not fit" in text
    assert "try: free space before the next save" in text


def test_a_run_that_stands_still_is_foretold_no_end_and_no_save() -> None:
    process = {**BASE["reading"]["run"]["processes"][0], "state": "T"}
    text = " ".join(page(status(processes=[process])).split())
    assert text.startswith("STALLED")
    assert "before it stalled" in text
    assert "ends in about" not in text
    assert "next save step 6000" in text
    assert "next save step 6000, in about" not in text


def test_checkpoints_that_cannot_be_listed_are_said_to_be_unknown() -> None:
    checkpoints = {**BASE["reading"]["run"]["checkpoints"], "found": [], "error": "Permission denied"}
    found = status(checkpoints=checkpoints)
    assert "unknown: the checkpoints cannot be listed (Permission denied)" in " ".join(page(found).split())
    assert found.document()["checkpoints_error"] == "Permission denied"


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    text = page(status(), width=width, force_terminal=True, color_system=None)
    assert max(map(len, text.splitlines())) <= width


def test_a_long_log_line_is_one_row_on_a_terminal_and_whole_elsewhere() -> None:
    long = '{"step": 5295, ' + "x" * 300 + "}"
    found = status(log={**BASE["reading"]["run"]["log"], "tail": f"{long}\nshort\n"})
    rows = page(found, force_terminal=True, color_system=None).splitlines()
    assert rows[-2].startswith("short")
    assert rows[-3].startswith('{"step": 5295, xxx')
    assert rows[-3].rstrip().endswith("…")
    assert long in page(found).splitlines()


def test_without_colour_there_is_no_escape_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in page(status(), force_terminal=True).replace("\x1b[1m", "").replace("\x1b[2m", "")
    assert "\x1b" not in page(status())


@pytest.mark.report("b7")
def test_nothing_in_a_log_an_argv_or_a_path_reaches_the_terminal_as_more_than_text() -> None:
    facts = BASE["reading"]["run"]
    process = {**facts["processes"][0], "argv": ["python3", HOSTILE], "cwd": HOSTILE}
    log = {**facts["log"], "tail": f"step 5295\n{HOSTILE}\n", "path": HOSTILE}
    twins = [process, {**process, "pid": 7, "root": 7}]
    for found in (status(processes=[process], log=log), status(processes=twins, log=log)):
        text = page(found)
        assert not [character for character in text if ord(character) < 32 and character != "\n"]
        assert "\x9b" not in text
        assert "\u202e" not in text
    assert "[bold red]loud[/]" in text
    assert ":smile:" in text


def test_a_line_break_in_an_argv_makes_no_line_of_its_own() -> None:
    process = {**BASE["reading"]["run"]["processes"][0], "argv": ["python3", "x\nRUNNING  drafter"]}
    text = page(status(processes=[process, {**process, "pid": 7, "root": 7}]), width=200)
    assert text.startswith("UNKNOWN")
    assert not any(line.startswith("RUNNING") for line in text.splitlines())


def test_an_unreached_host_shows_the_route_and_what_was_last_known() -> None:
    hops = [
        HopStatus(name="ct129", kind="ssh", state="ok"),
        HopStatus(name="pve", kind="ssh", state="failed", error="refused"),
        HopStatus(name="ct200", kind="pct", state="not tried"),
    ]
    found = TrainStatus(
        run="drafter",
        host=HostStatus(name="ct200"),
        verdict=Verdict.UNKNOWN,
        exit=3,
        at=10.0,
        since=10.0,
        evidence=["pve was not reached: refused"],
        last_known="RUNNING at step 5296, 4 min ago",
        hops=hops,
    )
    text = " ".join(page(found).split())
    assert text.startswith("UNKNOWN drafter on ct200: state unknown")
    assert "route ct129 ok → pve failed → ct200 not tried" in text
    assert "last known RUNNING at step 5296, 4 min ago" in text


def test_a_screen_is_data_that_any_renderer_can_print() -> None:
    space = {"free": 1, "free_root": 1}
    screen = screen_of(status(checkpoints={**BASE["reading"]["run"]["checkpoints"], "space": space}))
    assert (screen.verdict, screen.name) == (Verdict.RUNNING, "drafter on ct200")
    assert Row("step", "5296 of 563000 (0.9 %), loss 2.347") in screen.rows
    assert [row.level for row in screen.rows if row.label == "critical"] == ["critical"]
    assert screen.log_lines[-1].startswith("2027-01-15 07:59:56 step 5296")
    brief = screen_of(status(), brief=True, log=False)
    assert (brief.log_title, brief.log_lines) == ("", ())
