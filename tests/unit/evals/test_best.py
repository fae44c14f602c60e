"""The best evaluated so far: the highest mean among like results, and never without what it rests on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hostkit.evals.archive import Archive
from hostkit.evals.best import best_of
from hostkit.evals.results import EvalResult, dump
from tests.unit.evals.samples import document

ALL = [f"p{number}" for number in range(6)]


def file(folder: Path, step: int, lengths: list[int], **changes: Any) -> None:
    """File a result whose prompts all have these lengths, each a little different."""
    when = changes.pop("created_at", f"2026-11-30T10:00:{step % 60:02d}Z")
    asked = {name: [*lengths, index % 2] for index, name in enumerate(changes.pop("prompts", ALL))}
    made = document(asked, step=step, created_at=when, evaluation_id=f"{step:016x}", **changes)
    result = EvalResult.model_validate(made)
    source = {"path": f"/c/step_{step}/c.pt", "size": 7, "mtime_ns": step}
    files = {
        "result.json": dump(result.document()),
        "provenance.json": json.dumps({"source": source}).encode(),
    }
    Archive(folder, "drafter").add(result, files)


def test_the_highest_mean_wins_whatever_the_order_of_steps_and_says_all_it_rests_on(tmp_path: Path) -> None:
    for step, lengths in ((10, [1, 2]), (20, [5, 6]), (30, [3, 4])):
        file(tmp_path, step, lengths, metrics__accept_len=figure(lengths, (1.0, 9.0)))
    best, notes = best_of(str(tmp_path), "drafter")
    assert best is not None
    assert (best.step, best.compared, notes, best.beside) == (20, 3, [], None)
    assert (best.source or {})["mtime_ns"] == 20
    assert best.words == (
        "step 20, accept_len 5.50 [1.00, 9.00], 6 of 6 prompts, 18 blocks of 16; best of 3 comparable results, "
        "2026-11-30T10:00:20Z"
    )


def figure(lengths: list[int], interval: tuple[float, float] | None = None) -> dict[str, Any]:
    mean = sum(lengths) / len(lengths)
    return {"mean": mean, "sum": None, "n": 18, "prompts": 6, "interval": interval}


@pytest.mark.report("i3", "i5")
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"metrics__accept_len": {"mean": None, "n": 3, "reason": "not a number (nan)"}},
            "not a number (nan)",
        ),
        ({"coverage__prompts_asked": 9}, "complete, 6 of 9 prompts"),
        ({"status": "partial"}, "partial, 6 of 6 prompts"),
        ({"settings__metric_definition": "unverified"}, "definition of its metrics is unverified"),
        ({"metrics": {}}, "it has no accept_len"),
    ],
)
def test_what_does_not_count_is_left_out_and_named(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    file(tmp_path, 10, [1, 2])
    file(tmp_path, 20, [9, 9], **changes)
    best, notes = best_of(str(tmp_path), "drafter")
    assert best is not None
    assert (best.step, len(notes)) == (10, 1)
    assert why in notes[0]
    assert "step 20" in notes[0]


@pytest.mark.report("i9")
@pytest.mark.parametrize(
    "changes",
    [
        {"settings__block_size": 8},
        {"settings__seed": 1},
        {"settings__thinking": True},
        {"target__config_sha256": "other"},
        {"prompts": ALL[:5]},
    ],
)
def test_results_made_otherwise_than_the_newest_are_counted_and_not_ranked_with_it(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    file(tmp_path, 10, [9, 9], **changes)
    file(tmp_path, 20, [1, 2])
    best, notes = best_of(str(tmp_path), "drafter")
    assert best is not None
    assert (best.step, best.compared) == (20, 1)
    assert "the only result of its kind" in best.words
    assert notes == ["1 with other settings, target or prompts than the newest result"]


def test_a_best_that_cannot_be_told_from_the_next_says_so(tmp_path: Path) -> None:
    file(tmp_path, 10, [3, 3])
    file(tmp_path, 20, [3, 3])
    best, _ = best_of(str(tmp_path), "drafter")
    assert best is not None
    assert (best.beside or "").startswith(
        "no significant difference from step 10 of 2026-11-30T10:00:10Z (+0.00"
    )


def test_another_block_size_than_the_trained_one_and_no_interval_are_said(tmp_path: Path) -> None:
    file(tmp_path, 10, [1, 2], settings__trained_block_size=32)
    best, _ = best_of(str(tmp_path), "drafter")
    assert best is not None
    assert "no interval: too few prompts" in best.words
    assert "blocks of 16 (trained at 32)" in best.words


def test_an_empty_archive_an_unreadable_result_and_an_unreadable_archive_are_three_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert best_of(str(tmp_path / "none"), "drafter") == (None, [])
    file(tmp_path, 10, [1, 2])
    (result,) = tmp_path.rglob("result.json")
    result.write_text("{")
    best, notes = best_of(str(tmp_path), "drafter")
    assert (best, len(notes)) == (None, 1)
    assert "not a JSON document" in notes[0]

    def closed(_: Archive) -> Any:
        raise PermissionError(13, "Permission denied", "/archive")

    monkeypatch.setattr(Archive, "entries", closed)
    assert best_of(str(tmp_path), "drafter") == (
        None,
        ["the archive cannot be read: Permission denied: /archive"],
    )
