"""The whole job on the real fleet: a live training in ct200, its newest checkpoint evaluated on ct129."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fleet.conftest import worker_number
from tests.fleet.dflash import Run, tiny_target
from tests.fleet.fleet import Fleet
from tests.fleet.processes import until
from tests.fleet.saves import ROOT, inside, listing

pytestmark = [pytest.mark.fleet, pytest.mark.slow, pytest.mark.timeout(900)]

STEPS = (
    "find",
    "verify",
    "check-harness",
    "preflight",
    "stage",
    "one-block",
    "run",
    "collect",
    "compare",
    "archive",
    "recheck",
)

# When the command is killed: as each step has just begun, and amid those that take their time.
MOMENTS = (
    ("steps:", "find,"),
    ("find", "done"),
    ("verify", "done"),
    ("check-harness", "done"),
    ("preflight", "done"),
    ("stage", "done"),
    ("one-block", "running"),
    ("one-block", "done"),
    ("run", "running"),
    ("run", "done"),
    ("collect", "done"),
    ("compare", "done"),
    ("archive", "done"),
)


@dataclass(frozen=True)
class Scene:
    """A fleet with a live training, and hostkit on its laptop."""

    fleet: Fleet
    run: Run
    inventory: Path

    def hostkit(self, *words: str, code: int = 0) -> dict[str, Any]:
        done = self.fleet.hostkit(*words, "--json", "--inventory", str(self.inventory), timeout=600)
        assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def identity(self) -> tuple[int, int]:
        return self.run.process.pid, self.run.process.start_ticks()

    def idle(self) -> dict[str, list[list[str]]]:
        """Return what runs on each host when hostkit does nothing."""
        self.fleet.settle()
        until(lambda: "hostkit-hop" not in str(self.processes()), "the end of what watches a hop")
        return self.processes()

    def processes(self) -> dict[str, list[list[str]]]:
        """Return what runs on each host (without their servers' own words on how busy they are)."""
        return {
            host: sorted(
                words for words in self.fleet.processes(host).values() if "[listener]" not in words[0]
            )
            for host in ("ct129", "pve", "ct200")
        }

    def archived(self, step: int) -> list[Path]:
        return sorted((self.fleet.archive / "drafter").glob(f"step_{step}_*"))


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    # with xdist each worker's folder lies in one that all of them share
    base = tmp_path_factory.getbasetemp()
    target = tiny_target(base.parent if base.name.startswith("popen-") else base)
    fleet = Fleet.up(worker_number())
    try:
        run = Run(fleet, target)
        yield Scene(fleet, run, run.inventory())
    finally:
        fleet.down()


@pytest.mark.report("g3")
def test_status_evaluation_status_and_the_training_never_noticed(scene: Scene) -> None:
    step = scene.run.save()
    status = scene.hostkit("train-status")
    assert status["verdict"] == "RUNNING"
    assert status["step"]["saved"] == step
    identity, idle = scene.identity(), scene.idle()
    workspace = inside(scene.fleet, "ct200", "/workspace")
    before = listing(workspace)

    plan = scene.hostkit("eval-latest", "--dry-run")
    assert plan["schema"] == "hostkit.plan/1"
    assert not inside(scene.fleet, "ct129", "/root/eval").exists()
    assert scene.archived(step) == []

    found = scene.hostkit("eval-latest")
    assert found["checkpoint"]["step"] == step
    assert [one["state"] for one in found["steps"]] == ["done"] * len(STEPS)
    result = found["result"]
    assert result["status"] == "complete"
    assert result["isolation"]["cuda_available"] is False
    assert result["coverage"]["prompts_done"] == 2
    assert found["training"]["same_process"] is True

    after = listing(workspace)
    moving = {"train.log", "out"}
    assert {name: after.get(name) for name in before.keys() - moving} == {
        name: facts for name, facts in before.items() if name not in moving
    }
    assert after.keys() == before.keys()
    assert scene.identity() == identity
    scene.run.process.go_on(5)
    until(lambda: scene.processes() == idle, "the end of what the evaluation had started")
    assert scene.hostkit("train-status")["verdict"] == "RUNNING"

    (folder,) = scene.archived(step)
    assert json.loads((folder / "result.json").read_text())["id"] == result["id"]
    assert {"plan.json", "provenance.json", "verdict-before.json", "verdict-after.json", "log.txt"} <= {
        file.name for file in folder.iterdir()
    }
    again = scene.hostkit("eval-latest")
    assert again["reused"] is True
    assert scene.archived(step) == [folder]


@pytest.mark.report("c11")
def test_a_half_written_newest_checkpoint_is_passed_over_and_said_so(scene: Scene) -> None:
    step = scene.run.save()
    torn = inside(scene.fleet, "ct200", f"{ROOT}/step_{step + 1}/checkpoint.pt")
    scene.run.process.reach(step + 2)
    whole = inside(scene.fleet, "ct200", f"{ROOT}/step_{step}/checkpoint.pt").read_bytes()
    torn.parent.mkdir()
    torn.write_bytes(whole[: len(whole) * 2 // 3])
    try:
        found = scene.hostkit("eval-latest", "--quick")
    finally:
        torn.unlink()
        torn.parent.rmdir()
    assert found["checkpoint"]["step"] == step
    assert any(f"step {step + 1}" in line for line in found["caveats"]), found["caveats"]


@pytest.mark.report("g5")
def test_an_interpreter_without_torch_is_refused_with_one_list_before_anything_is_staged(
    scene: Scene,
) -> None:
    step = scene.run.save()
    data = yaml.safe_load(scene.inventory.read_text())
    data["evals"]["drafter"]["python"] = "/usr/bin/python3"
    other = scene.inventory.with_name("system-python.yaml")
    other.write_text(yaml.safe_dump(data))
    error = dataclasses.replace(scene, inventory=other).hostkit("eval-latest", code=78)
    assert any("torch" in fault for fault in error["faults"]), error
    assert not list(inside(scene.fleet, "ct129", "/root/eval").glob(f"checkpoints/*step{step}-*"))


def test_a_training_that_stands_still_is_said_and_evaluated_all_the_same(scene: Scene) -> None:
    step = scene.run.save()
    scene.run.process.stop()
    try:
        found = scene.hostkit("eval-latest", "--quick", code=1)
    finally:
        scene.run.process.signal(signal.SIGCONT)
    assert found["checkpoint"]["step"] == step
    assert found["result"]["status"] == "complete"
    assert any("STALLED" in words for words in found["bad"]), found["bad"]
    scene.run.process.go_on()


@pytest.mark.report("g9")
def test_a_second_command_says_what_the_first_is_at_and_may_attach_to_it(scene: Scene) -> None:
    step = scene.run.save()
    with start(scene, "eval-latest", "--quick") as first:
        assert first.stderr
        for line in first.stderr:
            if line.split()[:2] == ["one-block", "running"]:
                break
        busy = scene.hostkit("eval-latest", "--quick", code=75)
        attached = scene.hostkit("eval-latest", "--quick", "--attach")
        found = json.loads(first.communicate(timeout=600)[0])
    assert f"step {step}" in busy["what"]
    assert "--attach" in busy["hint"]
    assert first.returncode == 0, found
    assert attached["result"]["id"] == found["result"]["id"]
    assert len(scene.archived(step)) == 1


def test_a_command_that_is_killed_in_each_step_completes_when_it_is_given_again(scene: Scene) -> None:
    step = scene.run.save()
    identity, idle = scene.identity(), scene.idle()
    for moment in MOMENTS:
        assert killed_at(scene, *moment), f"eval-latest ended before {moment}"
        if scene.archived(step):  # its last steps may be over before the kill
            break
    assert moment in MOMENTS[-3:]
    found = scene.hostkit("eval-latest")
    assert found["checkpoint"]["step"] == step
    assert found["result"]["status"] == "complete"
    assert len(scene.archived(step)) == 1
    assert {file.name for file in scene.archived(step)[0].iterdir()} >= {"result.json", "verdict-after.json"}
    until(lambda: scene.processes() == idle, "no orphan on any host")
    jobs = scene.hostkit("job-list")["jobs"]
    assert {job["state"] for job in jobs} == {"done"}
    kinds = [job["spec"]["kind"] for job in jobs if job["spec"]["inputs"]["step"] == step]
    assert kinds.count("eval") == 1
    assert scene.identity() == identity
    scene.run.process.go_on()


def killed_at(scene: Scene, step: str, state: str) -> bool:
    """Run eval-latest and kill it (SIGKILL) when a step is said to be in a state; False when it ended by itself."""
    with start(scene, "eval-latest") as laptop:
        assert laptop.stderr
        for line in laptop.stderr:
            first, second, *_ = [*line.split(), "", ""]
            if first == step and (second == state or (state, second) == ("done", "skipped")):
                break
        ended = laptop.poll() is not None
        laptop.kill()
    return not ended


def start(scene: Scene, *words: str) -> subprocess.Popen[str]:
    """Begin a hostkit command on the laptop."""
    return subprocess.Popen(
        scene.fleet.hostkit_argv(*words, "--json", "--inventory", str(scene.inventory)),
        env=scene.fleet.environment,
        cwd=scene.fleet.home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
