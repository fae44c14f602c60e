"""Whatever a result, a plan or a job says of itself, it is shown as text and nothing else."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hostkit.evals.archive import Entry
from hostkit.evals.document import document
from hostkit.identity import Identity
from hostkit.jobs import IsolationMeasure, JobState
from hostkit.plan import Effect, Plan, PlanStep
from hostkit.report.evaluation import show as show_evaluation
from hostkit.report.jobs import show_job, show_jobs
from hostkit.report.plan import show as show_plan
from tests.unit.evals.samples import result
from tests.unit.evals.test_training import status

HOSTILE = "\x1b]0;pwned\x07\x1b[2J[bold red]x[/]\x9b31m\u202e"


@pytest.fixture
def page() -> Console:
    return Console(file=io.StringIO(), width=200, markup=False, emoji=False, highlight=False)


def text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert not any((ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 or c == "\u202e" for c in shown)
    return shown


def evaluation(**more: Any) -> dict[str, Any]:
    hostile = result(
        {"p": [1, 2]},
        settings__dtype=HOSTILE,
        metrics={HOSTILE: {"mean": 1.0, "n": 2}, "accept_len": {"mean": 1.5, "n": 2}},
        created_at=f"2026{HOSTILE}",
    )
    entry = Entry(Path("/archive/x"), hostile)
    return document(
        "drafter", "drafter", entry, entry, candidate={"step": 80, "path": HOSTILE}, sample="full",
        before=status(evidence=[HOSTILE]), after=status(verdict="STALLED", exit=2, evidence=[HOSTILE]),
        steps=[], notes=[HOSTILE], reused=False, ignore_run=False, **more,
    )  # fmt: skip


def test_an_evaluation_by_a_hostile_harness(page: Console) -> None:
    show_evaluation(evaluation(), page)
    shown = text(page)
    assert "[bold red]x[/]" in shown
    assert "over 1 prompts (too few to generalise)" in shown


def test_a_plan_names_whom_it_signals_and_no_word_of_it_acts(page: Console) -> None:
    who = Identity(boot_id="b", pid_ns=1, pid=4711, start_ticks=2, init_start_ticks=1)
    effects = (Effect.writes("ct129", f"/jobs/{HOSTILE}"), Effect.signals("ct129", who))
    plan = Plan(title=HOSTILE, steps=(PlanStep(name="end", host="ct129", summary=HOSTILE, effects=effects),))
    show_plan(plan.document(), page)
    assert "signals ct129 pid 4711" in text(page)


def test_a_list_of_jobs_keeps_each_on_a_row_and_says_below_why_one_ended(page: Console) -> None:
    job = JobState(
        host="ct129", job="fac22015b58a8904", attempt=1, state="memory", claimed_at=1796051726.0, path="/x",
        reason="went over its memory limit of 4.0 GiB, and the kernel ended it before it could end itself",
    )  # fmt: skip
    page.width = 72
    show_jobs(page, [job, job.model_copy(update={"state": "done", "reason": "fine"})], {})
    head, first, second, *below = text(page).splitlines()
    assert head.split() == ["host", "job", "what", "state", "started", "(UTC)", "took"]
    assert "memory" in first and "2026-11-30T15:15:26Z" in first and "done" in second
    assert " ".join(below).startswith("fac22015b58a8904: went over its memory limit") and "fine" not in text(
        page
    )


def test_a_job_with_a_hostile_record(page: Console) -> None:
    measure = IsolationMeasure(name=HOSTILE, applied=True, detail=HOSTILE)
    job = JobState(
        host="ct129",
        job=HOSTILE,
        attempt=1,
        state="failed",
        reason=HOSTILE,
        path="/x",
        isolation_measures=(measure,),
    )
    show_jobs(page, [job], {})
    show_job(page, job)
    assert "[bold red]x[/]" in text(page)
