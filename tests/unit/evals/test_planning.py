"""The plan of an evaluation is what is executed: its jobs by their own ids, and every folder that is written."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from hostkit.checkpoints import Contents
from hostkit.errors import RefusedError
from hostkit.evals.dflash import DFlash
from hostkit.evals.harness import Preflight
from hostkit.evals.planning import Work
from hostkit.evals.request import Sample
from hostkit.inventory.models import Host, Inventory
from hostkit.jobs import check, protect
from hostkit.staging.models import StagePlan

GIB = 2**30
READY = Preflight(8 * GIB, GIB, "nothing missing")


def inventory(workspace: str = "/root/eval", host: str = "ct129", prompts: str = "bundled") -> Inventory:
    return Inventory.model_validate(
        {
            "hostkit": 1,
            "archive": "/data/archive",
            "hosts": {
                "ct129": {"address": "10.1.230.172"},
                "pve": {"address": "10.1.2.6", "via": "ct129", "login": "there"},
                "ct200": {"pct": 200, "via": "pve"},
            },
            "runs": {
                "drafter": {
                    "host": "ct200",
                    "process": {"script": "train.py"},
                    "gpus": [0, 1],
                    "checkpoints": {"root": "/workspace/checkpoints"},
                }
            },
            "evals": {
                "drafter": {
                    "run": "drafter",
                    "host": host,
                    "workspace": workspace,
                    "python": "/usr/bin/python3",
                    "target": {"model": "/models/t"},
                    "prompts": prompts,
                }
            },
        }
    )


def work(found: Inventory) -> Work:
    evaluation = found.evals["drafter"]
    harness = DFlash()
    return Work(
        name="drafter",
        evaluation=evaluation,
        host=found.hosts[evaluation.host],
        sample=Sample.of(evaluation, quick=False),
        harness=harness,
        prompts=harness.prompts(evaluation),
        id="e" * 16,
        step=4000,
        archive="/data/archive/drafter",
        here="laptop",
    )


def staging(of: Work) -> StagePlan:
    return StagePlan(
        run="drafter", step=4000, source="ct200", source_path="/workspace/checkpoints/step_4000/checkpoint.pt",
        destination=of.evaluation.host, folder=of.paths.staged, name="drafter-step4000-0", entry="checkpoint.pt",
        format="torch-zip", bytes=10, contents=Contents(path="/c", complete=True),
    )  # fmt: skip


def test_each_job_of_the_plan_is_the_job_that_is_launched():
    mine = work(inventory())
    plan = mine.plan(staging(mine), READY)
    assert [step.name for step in plan.steps] == ["check-harness", "stage", "one-block", "run", "archive"]
    for step, spec in zip(
        plan.steps[2:4],
        (mine.spec(staging(mine).path, READY, one_block=True), mine.spec(staging(mine).path, READY)),
        strict=True,
    ):
        spawned = next(effect for effect in step.effects if effect.kind == "spawns")
        assert spawned.argv == spec.argv
        assert spawned.gpus == "none"
        assert spawned.limits.memory_bytes == 10 * GIB
        assert any(effect.path and effect.path.endswith(spec.id) for effect in step.effects)
    assert "--smoke" in plan.steps[2].effects[1].argv
    assert "--smoke" not in plan.steps[3].effects[1].argv


def test_prompts_of_this_machine_are_a_write_that_the_guard_sees(tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(b"{}\n")
    mine = work(inventory(prompts=str(file)))
    written = [effect.path for effect in mine.install_step().effects if effect.kind == "writes"]
    assert written == ["/root/eval", "/root/eval/prompts"]
    assert (
        mine.prompts.path
        == f"/root/eval/prompts/{hashlib.sha256(b'{}' + bytes([10])).hexdigest()[:16]}.jsonl"
    )


def test_a_workspace_among_the_runs_own_files_is_refused_before_anything_is_installed():
    found = inventory(workspace="/workspace/checkpoints/eval", host="ct200")
    mine = work(found)
    with pytest.raises(RefusedError) as caught:
        check(mine.plan(staging(mine), READY), protect(found))
    assert caught.value.rule == "no-write"


def test_a_workspace_beside_the_runs_files_is_not_theirs():
    found = inventory(workspace="/workspace/eval", host="ct200")
    mine = work(found)
    check(mine.plan(staging(mine), READY), protect(found))


def test_a_workspace_above_the_runs_files_is_refused():
    found = inventory(workspace="/workspace", host="ct200")
    mine = work(found)
    with pytest.raises(RefusedError) as caught:
        check(mine.plan(staging(mine), READY), protect(found))
    assert caught.value.rule == "no-write"


def test_an_archive_among_the_files_of_a_run_on_this_machine_is_refused():
    found = inventory()
    found.hosts["ct200"] = Host.model_validate({"local": True})
    mine = replace(work(found), here="ct200", archive="/workspace/checkpoints/archive/drafter")
    with pytest.raises(RefusedError, match="step archive"):
        check(mine.plan(staging(mine), READY), protect(found))
