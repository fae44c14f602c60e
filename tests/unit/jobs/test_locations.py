"""No write reaches a run's files under another name: real links and real paths through /proc, by device and inode."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hostkit.errors import RefusedError
from hostkit.inventory.models import Inventory
from hostkit.jobs import protect
from hostkit.jobs.locations import Locations, guard, locate
from hostkit.plan import Effect, Plan, PlanStep
from hostkit.transport.connections import THIS_MACHINE, Connections


@pytest.fixture
def run_files(tmp_path: Path) -> Path:
    root = tmp_path / "run" / "checkpoints"
    root.mkdir(parents=True)
    (tmp_path / "run" / "train.log").write_text("step 1\n")
    (tmp_path / "eval").mkdir()
    return tmp_path / "run"


def inventory(run_files: Path, archive: str = "/nowhere") -> Inventory:
    here = {"local": True, "python": sys.executable}
    return Inventory.model_validate(
        {
            "hostkit": 1,
            "archive": archive,
            "hosts": {"trainer": here, "other": here | {"machine": "other"}},
            "runs": {
                "drafter": {
                    "host": "trainer",
                    "process": {"script": "train.py"},
                    "log": {"path": str(run_files / "train.log")},
                    "checkpoints": {"root": str(run_files / "checkpoints")},
                    "save_on": {"file": str(run_files / "SAVE_NOW")},
                }
            },
        }
    )


def held_against(run_files: Path, host: str, path: Path | str) -> None:
    found = inventory(run_files)
    step = PlanStep(name="bad", host=host, summary="", effects=(Effect.writes(host, str(path)),))
    plan = Plan(title="t", steps=(step,))
    # names alone, which is all that a plan says, tell nothing here
    protected = protect(found).model_copy(update={"endpoints": {}})
    with Connections(found) as connections:
        guard(connections, found, plan, protected, runs=["drafter"])


def link(name: str, target: str) -> Callable[[Path], Path]:
    def made(run_files: Path) -> Path:
        path = run_files.parent / "eval" / name
        path.symlink_to(run_files / target)
        return path

    return made


HIDDEN: dict[str, Callable[[Path], Path | str]] = {
    "another name of the host": lambda files: files / "checkpoints" / "step_1",
    "a link to the checkpoints": link("staged", "checkpoints"),
    "a file below such a link": lambda files: link("staged", "checkpoints")(files) / "new" / "c.pt",
    "a link to what is still to be made there": link("staged", "checkpoints/new"),
    "a link to the log": link("out", "train.log"),
    "the root seen through a process": lambda files: f"/proc/self/root{files}/checkpoints/x",
    "the working directory of a process": lambda files: f"/proc/self/root/{files}/../run/checkpoints",
    "a folder above": lambda files: files,
    "a trigger file that is not there yet": lambda files: files.parent / "eval" / ".." / "run" / "SAVE_NOW",
}


@pytest.mark.parametrize("path", HIDDEN.values(), ids=HIDDEN)
@pytest.mark.parametrize("host", ["other", THIS_MACHINE])
def test_a_write_that_is_really_among_the_runs_files_is_refused(
    run_files: Path, host: str, path: Callable[[Path], Path | str]
) -> None:
    with pytest.raises(RefusedError, match="run drafter") as caught:
        held_against(run_files, host, path(run_files))
    assert (caught.value.rule, caught.value.exit_code) == ("no-write", 77)


@pytest.mark.parametrize("below", ["eval", "eval/new/deep", "run/checkpoints2", "run/SAVE_NOW2"])
def test_a_write_beside_the_runs_files_passes(run_files: Path, below: str) -> None:
    held_against(run_files, "other", run_files.parent / below)


def test_nothing_is_concluded_from_numbers_of_another_boot(run_files: Path) -> None:
    found = inventory(run_files)
    root = str(run_files / "checkpoints")
    with Connections(found) as connections:
        mine = locate(connections, found, "other", {root})
    theirs = Locations(booted_at=mine.booted_at + 1, paths=mine.paths)
    assert mine.paths[root].overlaps(theirs.paths[root])
    from hostkit.jobs.locations import check_locations

    step = PlanStep(name="good", host="other", summary="", effects=(Effect.writes("other", root),))
    check_locations(Plan(title="t", steps=(step,)), protect(found).runs[0], {"other": mine}, theirs)
