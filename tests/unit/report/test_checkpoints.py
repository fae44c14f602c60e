"""The list of checkpoints: every fact of every row at any width, and no figure without what it rests on."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from hostkit.checkpoints import Candidate, Contents
from hostkit.checkpoints.retention import Retention
from hostkit.evals.best import Best
from hostkit.evals.overview import Overview, Row
from hostkit.liveness.attempts import Attempt
from hostkit.report.checkpoints import show_overview
from hostkit.report.staging import show_plan
from hostkit.staging.models import StagePlan
from hostkit.staging.timing import Expected

BEFORE = "written before the live process began; whether that resumed from it is not known"
BEST = Best(
    eval="drafter",
    step=4000,
    metric="accept_len",
    mean=2.345,
    interval=(2.1, 2.6),
    blocks=300,
    prompts_done=10,
    prompts_asked=10,
    block_size=16,
    trained_block_size=32,
    blocks_per_prompt=30,
    created_at="2026-11-30T10:00:00Z",
    compared=3,
    beside="no significant difference from step 2000 of 2026-11-29T10:00:00Z (+0.05 [-0.10, 0.20])",
    folder="/a",
)


def row(
    step: int, word: Any = "live", evidence: str = "written since the live process began", **more: Any
) -> Row:
    base: dict[str, Any] = {
        "candidate": Candidate(
            step=step, path=f"/c/step_{step}/checkpoint.pt", complete=True, size=4_074_113_789, mtime_ns=1
        ),
        "chosen": False,
        "why": "older than step 6000",
        "age": 7500.0,
        "step_inside": step,
        "weights_bytes": 582_000_000,
        "attempt": Attempt(word=word, evidence=evidence),
        "next_to_go": False,
        "best": False,
    }
    return Row(**(base | more))


def seen(**more: Any) -> Overview:
    bad = Candidate(step=8000, path="/c/8", complete=False, reason="truncated archive: no end record", size=5)
    rows = (
        row(8000, candidate=bad, why="incomplete: truncated archive: no end record", step_inside=None),
        row(6000, chosen=True, why="chosen"),
        row(4000, "resumed-from", "its log says: resumed at step 4000", best=True),
        row(2000, "earlier", BEFORE, next_to_go=True, step_inside=1999),
    )
    base: dict[str, Any] = {
        "run": "drafter",
        "host": "ct200",
        "verdict": "RUNNING",
        "live_step": 7100,
        "note": None,
        "rows": rows,
        "retention": Retention(keep=3, keep_every=10000, evidence="declared in the inventory"),
        "next_save": 8000,
        "best": (BEST,),
        "best_notes": ("step 1000 of 2026-11-28T10:00:00Z: partial, 4 of 10 prompts",),
    }
    return Overview(**(base | more))


def shown(overview: Overview, width: int) -> str:
    out = io.StringIO()
    show_overview(Console(file=out, width=width, markup=False, emoji=False, highlight=False), overview)
    return out.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140])
def test_at_any_width_every_fact_is_there_and_no_line_is_wider(width: int) -> None:
    text = shown(seen(), width)
    flat = " ".join(text.split())
    for fact in (
        "8000", "6000", "4000", "1999", "3.8 GiB", "555.0 MiB", "2 h 5 min", "resumed from", "earlier",
        "incomplete: truncated archive: no end record", "best evaluated", "next deleted",
        "its log says: resumed at step 4000", BEFORE,
        "the trainer keeps the newest 3 and every 10000th step (declared in the inventory)",
        "it deletes 2000 at the next save (8000)",
        "step 4000, accept_len 2.35 [2.10, 2.60], 10 of 10 prompts, 300 blocks of 16 (trained at 32)",
        "no significant difference from step 2000", "left out: step 1000",
    ):  # fmt: skip
        assert fact in flat, fact
    path = "/c/step_6000/checkpoint.pt"
    assert max(len(line) for line in text.splitlines() if path not in line) <= width


def test_the_reason_stands_beside_the_row_where_there_is_room_and_below_it_where_not() -> None:
    wide = next(line for line in shown(seen(), 100).splitlines() if line.startswith("▸"))
    assert wide.endswith("live          chosen")
    narrow = shown(seen(), 80).splitlines()
    at = next(number for number, line in enumerate(narrow) if line.startswith("▸"))
    assert narrow[at].endswith("live")
    assert narrow[at + 1] == "    chosen"


def test_a_run_without_declared_checkpoints_is_told_what_to_declare() -> None:
    assert "declare `checkpoints:` with a `root`" in shown(seen(rows=(), declared=False), 100)
    assert "nothing saved yet, or `root` and `pattern`" in shown(seen(rows=()), 100)


def test_nothing_is_said_of_retention_and_of_results_where_nothing_is_known() -> None:
    bare = shown(seen(retention=None, best=(), best_notes=(), rows=(row(6000, chosen=True),)), 100)
    assert "the trainer keeps" not in bare
    assert "best evaluated" not in bare
    assert "deletes" not in bare
    none = shown(seen(evals=("drafter", "other"), best_notes=()), 100)
    assert "best evaluated (other): no result yet" in none
    assert "best evaluated (drafter): step 4000" in none


def test_what_is_remote_is_shown_harmless() -> None:
    evil = "its log says: \x1b[2Jresumed [bold]"
    text = shown(seen(rows=(row(6000, "resumed-from", evil, chosen=True, why="\x1b[31mx"),)), 100)
    assert "\x1b" not in text
    assert "[bold]" in text


def test_a_path_with_a_newline_writes_no_line_of_its_own() -> None:
    path = "/w/a\nnote: all is well\rstaged\u2028/step_6000"
    evil = row(6000, chosen=True, candidate=Candidate(step=6000, path=path, complete=True, size=5))
    text = shown(seen(rows=(evil,), chosen=evil.candidate), 100)
    assert "/w/a note: all is well staged/step_6000" in text


def test_the_document_names_every_fact_once() -> None:
    document = seen().document()
    assert document["schema"] == "hostkit.checkpoints/1"
    assert document["chosen"]["step"] == 6000
    assert set(document["checkpoints"][3]) == {
        "step", "path", "complete", "reason", "format", "size", "mtime_ns", "inode", "dev", "writer", "age", "chosen",
        "why", "step_inside", "weights_bytes", "attempt", "attempt_evidence", "next_to_go", "best",
    }  # fmt: skip
    assert document["checkpoints"][3]["attempt"] == "earlier"
    assert document["retention"]["keep"] == 3
    assert document["best"][0]["interval"] == [2.1, 2.6]


def test_a_staging_that_is_planned_names_what_it_would_remove() -> None:
    plan = StagePlan(
        run="drafter",
        step=4,
        source="ct200",
        source_path="/c/step_4.pt",
        destination="ct129",
        folder="/s",
        name="drafter-step4",
        entry="step_4.pt",
        format="torch-zip",
        bytes=1,
        contents=Contents(path="/c/step_4.pt", complete=True),
        prunable=("/s/drafter-step1",),
        keep=3,
        route=("ct129", "pve", "ct200"),
    )
    out = io.StringIO()
    show_plan(Console(file=out, width=100), plan, Expected(seconds=None, why="not known yet"))
    assert "route ct200 → pve → ct129 (pulled by ct129)" in out.getvalue()
    assert "removes ct129: /s/drafter-step1 (the newest 3 staged stay)" in out.getvalue()
