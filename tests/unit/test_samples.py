"""What earlier versions wrote is still read: archived results, job folders, inventories (tests/samples/<version>)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hostkit.evals.archive import Archive
from hostkit.inventory import load
from hostkit.transport.connections import Connections
from hostkit.transport.programs.run import run_program

SAMPLES = Path(__file__).parents[1] / "samples"
VERSIONS = sorted(folder for folder in SAMPLES.iterdir() if folder.is_dir())


def hostkit(*argv: str) -> dict[str, Any]:
    """Return the document that a command prints."""
    completed = subprocess.run(
        [sys.executable, "-c", "from hostkit.cli import main; main()", *argv, "--json"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    document: dict[str, Any] = json.loads(completed.stdout)
    return document


@pytest.fixture(params=VERSIONS, ids=lambda folder: folder.name)
def samples(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of one version's samples, beside an inventory whose one host has them as its state."""
    copy = tmp_path / "samples"
    shutil.copytree(request.param, copy)
    (tmp_path / "inventory.yaml").write_text(
        f"hostkit: 1\narchive: {copy}/archive\nhosts:\n  here: {{local: true, state: {copy}}}\n"
        f"runs:\n  drafter: {{host: here, process: {{script: no_such_trainer.py}}}}\n"
    )
    return copy


def test_an_archived_result_is_read_with_all_its_figures(samples: Path) -> None:
    entries, unreadable = Archive(samples / "archive", "drafter").entries()
    assert not unreadable
    (entry,) = entries
    stored = json.loads((entry.folder / "result.json").read_text())
    assert entry.result.status == "complete"
    assert entry.result.checkpoint.step == stored["checkpoint"]["step"] == 100
    assert entry.result.document()["metrics"] == stored["metrics"]


def test_job_folders_are_listed_with_how_they_ended_and_what_they_printed(samples: Path) -> None:
    inventory = str(samples.parent / "inventory.yaml")
    listed = hostkit("job-list", "--host", "here", "--inventory", inventory)
    jobs = listed["jobs"]
    assert {(job["job"], job["state"], job["exit"]) for job in jobs} == {
        ("2df71f45871e667a", "done", 0),
        ("57c0e2792fd1d425", "done", 0),
    }


@pytest.mark.parametrize("name", ["fleet", "plain", "practice"])
def test_an_inventory_is_accepted(samples: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(samples.parent))
    hostkit("inventory", "--check", "--inventory", str(samples / "inventory" / f"{name}.yaml"))


def test_a_staged_checkpoint_is_proven_for_reuse_and_counts_in_retention(samples: Path) -> None:
    (staged,) = (samples / "staged").iterdir()
    inventory = load(samples.parent / "inventory.yaml")
    request = {"folder": str(staged.parent), "name": staged.name, "state": str(samples)}
    with Connections(inventory) as connections:
        receiver = partial(run_program, connections.transport("here"), sys.executable, "receiver")
        prepared = receiver(request | {"op": "prepare", "run": "drafter", "keep": 3})
        assert prepared["staged"]["entry"] == "checkpoint.pt"
        proven = receiver(request | {"op": "prove"})
        assert (proven["proven"], proven["reason"]) == (True, None)
        newer = request | {"name": "drafter-step200-01234567"}
        prepared = receiver(newer | {"op": "prepare", "run": "drafter", "keep": 1})
        assert prepared["prunable"] == [str(staged)]
