"""Which staged checkpoints are let go, and that none in use ever is."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import time
from pathlib import Path
from typing import Any

import pytest

from host import process
from transfer import retention
from transfer.staging_dir import Claim, RefusedError, StagingSlot


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five staged checkpoints of one run, one of another, and somebody's own folder."""
    folder = tmp_path / "staged"
    (folder / ".staging").mkdir(parents=True)
    for step in (1, 2, 3, 4, 5):
        staged(folder, f"drafter-step{step}", "drafter", step)
    staged(folder, "other-step1", "other", 1)
    (folder / "notes").mkdir()
    (folder / "notes" / "manifest.json").write_text("[]")
    return folder


def staged(folder: Path, name: str, run: str, at: float) -> None:
    (folder / name).mkdir()
    (folder / name / "checkpoint.pt").write_bytes(b"weights" * 1000)
    manifest = {"schema": "hostkit.staged/1", "run": run, "step": at, "staged_at": -at}
    (folder / name / "manifest.json").write_text(json.dumps(manifest))


def left(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir() if one.name.startswith("drafter"))


def prune(folder: Path, keep: int, newest: str = "drafter-step5") -> list[str]:
    state = str(folder.parent / "state")
    return [Path(one).name for one in retention.prune(str(folder), newest, "drafter", keep, state)]


def test_the_newest_few_of_the_run_stay_and_nothing_of_anybody_elses_goes(folder: Path) -> None:
    assert sorted(prune(folder, 3)) == ["drafter-step1", "drafter-step2"]
    assert left(folder) == ["drafter-step3", "drafter-step4", "drafter-step5"]
    assert {"other-step1", "notes"} <= {one.name for one in folder.iterdir()}


def test_the_one_just_staged_stays_though_its_clock_says_otherwise(folder: Path) -> None:
    prune(folder, 1, newest="drafter-step2")
    assert left(folder) == ["drafter-step2"]


def test_one_that_a_process_has_open_or_mapped_stays(folder: Path) -> None:
    with (folder / "drafter-step1" / "checkpoint.pt").open("rb"):
        with (folder / "drafter-step2" / "checkpoint.pt").open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        watched = str(folder / "drafter-step1"), str(folder / "drafter-step2")
        # our own process does not count for prune, so another one asks
        import subprocess
        import sys

        code = (
            f"import sys; sys.path.insert(0, {str(Path(retention.__file__).parents[1])!r});"
            "from transfer import retention;"
            f"print([bool(retention.users(p, p, '/nowhere')) for p in {watched!r}])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        mapped.close()
    assert done.stdout.strip() == "[True, True]"


def test_one_that_an_unfinished_job_names_stays_until_the_job_has_ended(folder: Path) -> None:
    job = folder.parent / "state" / "jobs" / "0123456789abcdef"
    job.mkdir(parents=True)
    path = folder / "drafter-step1" / "checkpoint.pt"
    (job / "spec.json").write_text(json.dumps({"argv": ["eval.py", "--checkpoint", str(path)]}))
    with (job / "spec.json").open() as claim:  # its launch goes on
        fcntl.flock(claim, fcntl.LOCK_EX)
        assert prune(folder, 4) == []
    (job / "identity.json").write_text(json.dumps({"supervisor": process.identity(os.getpid())}))
    (job / "status.json").write_text(json.dumps({"state": "running"}))
    assert prune(folder, 4) == []
    (job / "status.json").write_text(json.dumps({"state": "done"}))
    assert prune(folder, 4) == ["drafter-step1"]


@pytest.mark.parametrize("change", [{"start_ticks": 1}, {"boot_id": "another"}])
def test_a_job_lost_to_a_kill_or_a_reboot_keeps_nothing(folder: Path, change: dict[str, Any]) -> None:
    job = folder.parent / "state" / "jobs" / "0123456789abcdef"
    job.mkdir(parents=True)
    path = folder / "drafter-step1" / "checkpoint.pt"
    (job / "spec.json").write_text(json.dumps({"argv": ["eval.py", "--checkpoint", str(path)]}))
    supervisor = process.identity(os.getpid())
    assert supervisor is not None
    assert change.keys() <= supervisor.keys()
    (job / "identity.json").write_text(json.dumps({"supervisor": supervisor | change}))
    (job / "status.json").write_text(json.dumps({"state": "running"}))
    assert prune(folder, 4) == ["drafter-step1"]


def test_a_lock_goes_with_its_copy_and_one_that_is_held_or_still_needed_stays(folder: Path) -> None:
    staging = folder / ".staging"
    unused, held, cut_lately = (f"drafter-step{step}-0123abcd" for step in (7, 8, 9))
    cut(folder, cut_lately, hours=2)
    for name in (unused, cut_lately, "somebody's"):
        (staging / f"{name}.lock").touch()
    with Claim(StagingSlot(str(folder), held)):
        prune(folder, 9)
        assert {one.name for one in staging.glob("*.lock")} == {
            f"{held}.lock",
            f"{cut_lately}.lock",
            "somebody's.lock",
        }


def test_who_waited_for_a_lock_that_its_holder_removed_takes_the_next_one(folder: Path) -> None:
    slot = StagingSlot(str(folder), "drafter-step7-0123abcd")
    with Claim(slot):  # nothing is on its way
        waiting = os.open(slot.lock, os.O_RDWR)
    assert not os.path.exists(slot.lock)
    with Claim(slot):
        fcntl.flock(waiting, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the file that is gone: nobody is kept out by it
        with pytest.raises(RefusedError):
            Claim(slot, tries=1)
    os.close(waiting)


def test_the_highest_steps_stay_whenever_they_were_staged(folder: Path) -> None:
    assert prune(folder, 2, newest="drafter-step2") == ["drafter-step4", "drafter-step3", "drafter-step1"]


def test_a_removal_that_was_cut_short_is_finished(folder: Path) -> None:
    going = folder / ".staging" / "drafter-step0.going"
    going.mkdir()
    (going / "checkpoint.pt").touch()
    prune(folder, 9)
    assert not going.exists()


def cut(folder: Path, name: str, *, hours: float) -> Path:
    """Leave a copy that was cut so long ago."""
    partial = folder / ".staging" / name
    partial.mkdir()
    for one in (partial / "checkpoint.pt", partial):
        one.touch()
        os.utime(one, (time.time() - hours * 3600,) * 2)
    return partial


def test_a_copy_that_was_cut_and_that_nobody_goes_on_with_is_let_go(folder: Path) -> None:
    long_ago = cut(folder, "drafter-step7-0123abcd", hours=25)
    aside = cut(folder, "drafter-step7-0123abcd.old-17", hours=25)
    lately = cut(folder, "drafter-step8-0123abcd", hours=2)
    another = cut(folder, "drafter-two-step7-0123abcd", hours=25)
    foreign = cut(folder, "drafter-notes", hours=25)
    assert prune(folder, 9) == [long_ago.name, aside.name]
    assert [one.exists() for one in (long_ago, aside, lately, another, foreign)] == [False] * 2 + [True] * 3


def test_a_copy_that_is_held_or_read_is_never_abandoned(folder: Path) -> None:
    stands = cut(folder, "drafter-step7-0123abcd", hours=25)  # its sender hangs: nothing was written for long
    with Claim(StagingSlot(str(folder), stands.name)):
        assert prune(folder, 9) == []
    job = folder.parent / "state" / "jobs" / "0123456789abcdef"
    job.mkdir(parents=True)
    aside = stands.rename(stands.with_name(stands.name + ".old-17"))
    (job / "spec.json").write_text(json.dumps({"argv": [str(folder / stands.name / "checkpoint.pt")]}))
    with (job / "spec.json").open() as claim:
        fcntl.flock(claim, fcntl.LOCK_EX)
        assert prune(folder, 9) == []
    assert aside.exists()
