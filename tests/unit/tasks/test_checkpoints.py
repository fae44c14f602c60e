"""`checkpoints` and `stage` as commands, on this machine, with a run that lives and real torch files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hostkit.evals.archive import Archive
from hostkit.evals.results import EvalResult, dump
from tests.unit.evals.samples import document as result

HERE = str(Path(__file__).parents[3])


class Fleet:
    """This machine as training and evaluation host, with one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.script = folder / f"train_{folder.name}.py"
        self.script.write_text("import sys\nprint('up', flush=True)\nsys.stdin.read()\n")
        self.log = folder / "log"
        self.checkpoints: dict[str, Any] = {"root": str(folder / "ckpt"), "every": 100}
        self.process: subprocess.Popen[str] | None = None

    def start(self, *argv: str) -> None:
        """Start the run's process, and return once it is up."""
        words = [sys.executable, str(self.script), *argv]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "up\n"

    def end(self) -> None:
        if self.process is not None:
            self.process.communicate()

    def save(self, step: int, *, age: float = 0.0, small: bool = False) -> Path:
        import torch

        path = self.folder / "ckpt" / f"step_{step}" / "checkpoint.pt"
        path.parent.mkdir(parents=True)
        weights = {"w": torch.full((1000,), float(step))}
        moments = torch.zeros(8 if small else 6_000_000)
        torch.save({"drafter": weights, "optimizer": moments, "step": step}, path)
        if age:
            then = path.stat().st_mtime - age
            os.utime(path, (then, then))
        return path

    def ask(self, *argv: str) -> subprocess.CompletedProcess[str]:
        evaluation = {
            "run": "r", "host": "me", "workspace": str(self.folder / "eval"), "python": sys.executable,
            "target": {"model": "/m"},
        }  # fmt: skip
        document = {
            "hostkit": 1,
            "archive": str(self.folder / "archive"),
            "hosts": {"me": {"local": True, "python": sys.executable}},
            "runs": {
                "r": {
                    "host": "me",
                    "process": {"script": str(self.script)},
                    "log": {"path": str(self.log)},
                    "checkpoints": self.checkpoints,
                }
            },
            "evals": {"e": evaluation},
        }
        (self.folder / "fleet.yaml").write_text(yaml.safe_dump(document))
        words = [sys.executable, "-c", "from hostkit.cli import main; main()", argv[0]]
        words += ["--inventory", str(self.folder / "fleet.yaml"), *argv[1:]]
        state = {"XDG_STATE_HOME": str(self.folder / "state"), "HOME": str(self.folder), "PYTHONPATH": HERE}
        return subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, **state})

    def json(self, *argv: str) -> tuple[int, dict[str, Any]]:
        done = self.ask(*argv, "--json")
        found = json.loads(done.stdout)
        assert isinstance(found, dict), done.stderr
        return done.returncode, found


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path)
    yield made
    made.end()


def evaluated(fleet: Fleet, step: int, length: int) -> None:
    made = result(
        {f"p{i}": [length, length + i % 2] for i in range(6)}, step=step, evaluation_id=f"{step:016x}"
    )
    document = EvalResult.model_validate(made)
    Archive(fleet.folder / "archive", "e").add(document, {"result.json": dump(document.document())})


def test_every_checkpoint_is_listed_with_its_attempt_what_goes_next_and_the_best_evaluated(
    fleet: Fleet,
) -> None:
    fleet.save(900, age=9000)
    resumed = fleet.save(100, age=9000)
    fleet.save(200, age=8000)
    fleet.start("--resume", str(resumed))
    fleet.log.write_text("step 299 loss 2\nstep 300 loss 2\n")
    fleet.save(300)
    fleet.checkpoints["keep"] = 3
    evaluated(fleet, 100, 1)
    evaluated(fleet, 200, 5)
    code, found = fleet.json("checkpoints")
    assert code == 0
    rows = {one["step"]: one for one in found["checkpoints"]}
    assert {step: one["attempt"] for step, one in rows.items()} == {
        900: "earlier",
        300: "live",
        200: "earlier",
        100: "resumed-from",
    }
    said = rows[100]["attempt_evidence"]  # cut where the path is long, as that of a test's folder may be
    assert said.startswith("its argv says --resume /")
    assert f"its argv says --resume {resumed}".startswith(said)
    assert found["chosen"]["step"] == 300
    assert [(one["step_inside"], one["weights_bytes"]) for one in rows.values()] == [
        (step, 4000) for step in rows
    ]
    assert [step for step, one in rows.items() if one["next_to_go"]] == [200, 100]
    assert (found["next_save"], found["retention"]["evidence"]) == (400, "declared in the inventory")
    (best,) = found["best"]
    assert (best["step"], best["mean"], best["compared"], best["prompts_done"]) == (200, 5.25, 2, 6)
    assert [step for step, one in rows.items() if one["best"]] == [200]
    text = " ".join(fleet.ask("checkpoints").stdout.split())
    assert "best evaluated (e): step 200, accept_len 5.25" in text
    assert "earlier (900): written before the live process began, and above its step 30" in text


def test_without_a_process_and_without_declarations_nothing_is_made_up(fleet: Fleet) -> None:
    fleet.save(100)
    fleet.log.write_text("step 100 loss 2\n")
    _, found = fleet.json("checkpoints")
    (one,) = found["checkpoints"]
    assert one["attempt"] == "unknown"
    assert one["attempt_evidence"].startswith("no live process is known for certain")
    assert (one["next_to_go"], found["retention"], found["best"]) == (None, None, [])


def test_a_dry_run_foretells_a_time_only_after_a_staging_over_the_same_route(fleet: Fleet) -> None:
    fleet.save(100)
    fleet.save(200)
    stage = ("stage", "--run", "r", "--step")
    _, planned = fleet.json(*stage, "100", "--dry-run")
    assert planned["stage"]["expected"]["seconds"] is None
    assert planned["stage"]["expected"]["why"] == "not known yet: never staged over this route"
    text = fleet.ask(*stage, "100", "--dry-run", "--rate", "1kB").stdout
    assert "never staged over this route; at least 5." in text
    code, staged = fleet.json(*stage, "100")
    assert (code, staged["method"]) == (0, "weights")
    _, planned = fleet.json(*stage, "200", "--dry-run")
    assert 0 < planned["stage"]["expected"]["seconds"] < 2 * staged["seconds"]
    text = fleet.ask(*stage, "200", "--dry-run").stdout
    assert "time about " in text
    assert " came over this route in " in text
    assert (
        "nothing to copy; the staged copy is verified again" in fleet.ask(*stage, "100", "--dry-run").stdout
    )


def test_a_checkpoint_that_goes_at_the_next_save_is_staged_with_a_word_about_it(fleet: Fleet) -> None:
    fleet.save(100, small=True)
    fleet.save(200, small=True)
    fleet.checkpoints["keep"] = 2
    told = {}
    for step in ("100", "200"):
        code, planned = fleet.json("stage", "--run", "r", "--step", step, "--dry-run")
        assert code == 0
        told[step] = planned["stage"]["next_to_go"]
    assert told == {"100": True, "200": False}
    said = fleet.ask("stage", "--run", "r", "--step", "100", "--dry-run").stderr
    assert "the trainer deletes step 100 at its next save" in said


def test_a_plan_is_made_also_where_there_is_no_place_for_a_journal(fleet: Fleet) -> None:
    fleet.save(100, small=True)
    (fleet.folder / "state").write_text("no folder")
    code, planned = fleet.json("stage", "--run", "r", "--dry-run")
    assert (code, planned["stage"]["expected"]["seconds"]) == (0, None)


def test_what_once_trimmed_a_copy_is_an_unknown_flag(fleet: Fleet) -> None:
    assert fleet.ask("stage", "--run", "r", "--trim").returncode == 64


def test_a_folder_with_doubled_slashes_is_the_one_that_is_meant(fleet: Fleet) -> None:
    fleet.save(100)
    code, planned = fleet.json("stage", "--dry-run", "--to", "me", "--folder", f"/{fleet.folder}//there/")
    assert code == 0, planned
    assert planned["stage"]["folder"] == f"{fleet.folder}/there"


def test_in_a_folder_that_was_named_nothing_is_removed_unless_keep_says_so(fleet: Fleet) -> None:
    own = fleet.folder / "own"
    stage = ("stage", "--run", "r", "--to", "me", "--folder", str(own))
    for step in (100, 200, 300, 400, 1500):
        fleet.save(step, small=True)
        code, staged = fleet.json(*stage, "--step", f"{step:,}")
        assert (code, staged["removed"]) == (0, [])
    fleet.save(1600, small=True)
    code, staged = fleet.json(*stage, "--step", "1600", "--keep", "2")
    assert code == 0
    assert len(staged["removed"]) == 4
    assert sorted(path.name.split("-")[1] for path in own.iterdir() if path.name != ".staging") == [
        "step1500",
        "step1600",
    ]
    assert fleet.ask(*stage, "--keep", "0").returncode == 64


def test_one_that_only_a_closer_look_finds_torn_is_listed_as_that_and_not_chosen(fleet: Fleet) -> None:
    fleet.save(100)
    torn = fleet.save(200)
    with torn.open("r+b") as file:  # head and directory are there, what lies between never reached the disk
        file.seek(64)
        file.write(bytes(512))
    code, listed = fleet.json("checkpoints")
    assert (code, listed["chosen"]["step"]) == (0, 100)
    (newest,) = [one for one in listed["checkpoints"] if one["step"] == 200]
    assert "damaged archive" in newest["why"]
