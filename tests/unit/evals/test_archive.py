"""The archive keeps every result whole, and replaces none."""

from __future__ import annotations

import json
import os

import pytest

from hostkit.errors import CannotCreateError
from hostkit.evals.archive import Archive, add_later
from hostkit.evals.results import dump

from .samples import result


def filed(archive, found):
    return archive.add(found, {"result.json": dump(found.document())})


@pytest.mark.report("i7")
def test_two_results_of_the_same_second_are_both_kept(tmp_path):
    archive = Archive(tmp_path, "drafter")
    first, second = filed(archive, result({"p": [1]})), filed(archive, result({"p": [2]}))
    assert first != second
    assert len(archive.entries()[0]) == 2
    assert first.name.startswith("step_4000_20261130T101500Z_")


def test_what_a_kill_amid_filing_left_is_cleared_by_a_later_filing_and_one_under_way_is_not(tmp_path):
    archive = Archive(tmp_path, "drafter")
    names = [f".step_4000_20261130T101500Z_{number:08x}" for number in (1, 2)]
    for name in (*names, ".step_notes", ".somebody"):
        (archive.folder / name).mkdir(parents=True)
        (archive.folder / name / "result.json").write_text("{")
    for name in (names[0], ".step_notes", ".somebody"):
        os.utime(archive.folder / name, (1, 1))
    kept = filed(archive, result({"p": [1]}))
    assert {one.name for one in archive.folder.iterdir()} == {
        names[1],
        ".step_notes",
        ".somebody",
        kept.name,
    }


@pytest.mark.report("c19")
def test_a_late_result_of_an_older_step_is_compared_with_its_own_past(tmp_path):
    archive = Archive(tmp_path, "drafter")
    for step, at in ((4000, "T08"), (6000, "T09"), (5000, "T10")):
        filed(
            archive,
            result({"p": [1]}, step=step, evaluation_id=f"{step:016d}", created_at=f"2026-11-30{at}:00:00Z"),
        )
    steps = [entry.result.checkpoint.step for entry in archive.entries()[0]]
    assert steps == [4000, 5000, 6000]
    late = archive.with_id(f"{5000:016d}")
    assert archive.before(late.result).result.checkpoint.step == 4000


def test_a_result_is_found_by_its_id_and_a_whole_one_before_a_partial_one(tmp_path):
    archive = Archive(tmp_path, "drafter")
    filed(archive, result({"p": [1]}))
    filed(archive, result({"p": [1]}, status="partial", created_at="2026-11-30T11:00:00Z"))
    assert archive.with_id("e" * 16).result.status == "complete"
    assert archive.with_id("f" * 16) is None


@pytest.mark.report("i11")
def test_drafts_foreign_folders_and_broken_files_are_never_taken_for_results(tmp_path):
    archive = Archive(tmp_path, "drafter")
    good = filed(archive, result({"p": [1]}))
    for name in (
        ".step_9000_20261130T101500Z_00000000",
        "step_9000",
        "step_9000_20261130T101500Z_00000000.tmp",
    ):
        (archive.folder / name).mkdir()
        (archive.folder / name / "result.json").write_bytes((good / "result.json").read_bytes())
    broken = archive.folder / "step_8000_20261130T101500Z_00000000"
    broken.mkdir()
    (broken / "result.json").write_text('{"schema": "hostkit.eval-result/1"')
    fifo = archive.folder / "step_8500_20261130T101500Z_00000000"
    fifo.mkdir()
    os.mkfifo(fifo / "result.json")
    entries, lines = archive.entries()
    assert [entry.folder for entry in entries] == [good]
    assert [str(folder) in line for folder, line in zip((broken, fifo), lines, strict=True)] == [True, True]


def test_a_later_file_does_not_replace_one_that_is_there(tmp_path):
    folder = filed(Archive(tmp_path, "drafter"), result({"p": [1]}))
    add_later(folder, "verdict-after.json", b'"first"')
    add_later(folder, "verdict-after.json", b'"second"')
    assert json.loads((folder / "verdict-after.json").read_bytes()) == "first"
    assert sorted(path.name for path in folder.iterdir()) == ["result.json", "verdict-after.json"]


def test_an_archive_that_cannot_be_written_says_so_and_leaves_nothing(tmp_path):
    (tmp_path / "drafter").write_text("a file where the folder should be")
    with pytest.raises(CannotCreateError) as caught:
        filed(Archive(tmp_path, "drafter"), result({"p": [1]}))
    assert str(tmp_path / "drafter") in str(caught.value)


def test_a_result_that_is_filed_already_is_not_filed_twice(tmp_path):
    archive = Archive(tmp_path, "drafter")
    first = filed(archive, result({"p": [1]}))
    assert filed(archive, result({"p": [1]})) == first
    assert filed(archive, result({"p": [1]}, created_at="2026-11-30T12:00:00Z")) != first
