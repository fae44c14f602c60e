"""The guard refuses, with the rule's name, each step that would touch a run, and lets the others pass."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from hostkit.errors import RefusedError
from hostkit.identity import Identity
from hostkit.inventory.models import Host, Inventory
from hostkit.jobs import Facts, JobSpec, Need, check, check_head_room, plan_launch, protect
from hostkit.plan import Effect, Plan, PlanStep

RUN = Identity(boot_id="b", pid_ns=1, pid=412, start_ticks=77, init_start_ticks=3)
GIB = 2**30


@pytest.fixture
def inventory() -> Inventory:
    return Inventory.model_validate(
        {
            "hostkit": 1,
            "archive": "/data/archive",
            "hosts": {
                "ct129": {"address": "10.1.230.172"},
                "pve": {"address": "10.1.2.6", "via": "ct129", "login": "there"},
                "ct200": {"pct": 200, "via": "pve"},
                "ct201": {"pct": 201, "via": "pve"},
                "other": {"address": "10.9.9.9"},
                "twin": {"address": "10.9.9.10", "machine": "pve"},
                "again": {"pct": 200, "via": "pve2"},
                "pve2": {"address": "10.1.2.6"},
            },
            "runs": {
                "drafter": {
                    "host": "ct200",
                    "process": {"script": "train.py"},
                    "gpus": [0, 1],
                    "log": {"path": "/workspace/train.log"},
                    "checkpoints": {"root": "/workspace/checkpoints"},
                    "save_on": {"file": "/workspace/SAVE_NOW"},
                }
            },
        }
    )


def seen(*identities: Identity, log: str | None = None) -> Any:
    processes = [SimpleNamespace(identity=identity) for identity in identities]
    return SimpleNamespace(run="drafter", processes=processes, log=SimpleNamespace(path=log))


REFUSED = {
    "the run itself": ("no-signal", Effect.signals("ct200", RUN)),
    "the run, seen from its Proxmox host": ("no-signal", Effect.signals("pve", RUN)),
    "a process that nobody identified": ("no-signal", Effect(kind="signals", host="other")),
    "every process": ("no-signal", Effect.signals("other", RUN.model_copy(update={"pid": -1}))),
    "the first process": ("no-signal", Effect.signals("ct129", RUN.model_copy(update={"pid": 1}))),
    "its log": ("no-write", Effect.writes("ct200", "/workspace/train.log")),
    "the log that was found": ("no-write", Effect.writes("ct200", "/var/log/found.log")),
    "a checkpoint": ("no-write", Effect.writes("ct200", "/workspace/checkpoints/step_1/checkpoint.pt")),
    "a folder above its checkpoints": ("no-write", Effect.writes("ct200", "/workspace")),
    "a path that only looks elsewhere": (
        "no-write",
        Effect.writes("ct200", "/tmp/../workspace//checkpoints/x"),
    ),
    "nobody knows what": ("no-write", Effect(kind="writes", host="ct200")),
    "a checkpoint, under a second name of its machine": (
        "no-write",
        Effect.writes("twin", "/workspace/checkpoints/x"),
    ),
    "a checkpoint, under a second name of its container": (
        "no-write",
        Effect.writes("again", "/workspace/checkpoints/x"),
    ),
    "its trigger file": ("no-write", Effect.writes("ct200", "/workspace/SAVE_NOW")),
    "any GPU": ("no-gpu", Effect.spawns("ct200", ["x"], gpus="any", memory_bytes=1)),
    "one of its GPUs": ("no-gpu", Effect.spawns("ct200", ["x"], gpus=(1, 2), memory_bytes=1)),
    "its GPUs, from a neighbour": ("no-gpu", Effect.spawns("ct201", ["x"], gpus="any", memory_bytes=1)),
    "its GPUs, from a declared twin": ("no-gpu", Effect.spawns("twin", ["x"], gpus="any", memory_bytes=1)),
    "its memory": ("memory-limit", Effect.spawns("ct200", ["x"])),
    "its memory, from a neighbour": ("memory-limit", Effect.spawns("ct201", ["x"])),
    "the way in": ("hop-reserve", Effect.spawns("ct129", ["x"])),
}

ALLOWED = {
    "another process": Effect.signals("ct200", RUN.model_copy(update={"pid": 413})),
    "the same number later": Effect.signals("ct200", RUN.model_copy(update={"start_ticks": 78})),
    "the same number elsewhere": Effect.signals("other", RUN),
    "reading a checkpoint": Effect.reads("ct200", "/workspace/checkpoints/step_1/checkpoint.pt"),
    "a sibling with a longer name": Effect.writes("ct200", "/workspace/checkpoints2/x"),
    "nobody knows what elsewhere": Effect(kind="writes", host="ct129"),
    "the same path elsewhere": Effect.writes("ct129", "/workspace/checkpoints"),
    "the same path in a neighbour": Effect.writes("ct201", "/workspace/checkpoints"),
    "the same path on its Proxmox host": Effect.writes("pve", "/workspace/checkpoints"),
    "a job without GPUs and with a limit": Effect.spawns("ct200", ["x"], memory_bytes=GIB),
    "GPUs that the run has not": Effect.spawns("ct200", ["x"], gpus=(2, 3), memory_bytes=GIB),
    "GPUs of another machine": Effect.spawns("other", ["x"], gpus="any"),
}


@pytest.mark.parametrize(("rule", "effect"), REFUSED.values(), ids=REFUSED)
def test_a_step_that_would_touch_the_run_is_refused_by_rule(
    inventory: Inventory, rule: str, effect: Effect
) -> None:
    good = PlanStep(name="harmless", host="other", summary="")
    bad = PlanStep(name="bad", host=effect.host, summary="", effects=(effect,))
    plan = Plan(title="t", steps=(good, bad))
    with pytest.raises(RefusedError, match="step bad") as caught:
        check(plan, protect(inventory, [seen(RUN, log="/var/log/found.log")]))
    assert (caught.value.rule, caught.value.exit_code, caught.value.where) == (rule, 77, effect.host)


@pytest.mark.parametrize("effect", ALLOWED.values(), ids=ALLOWED)
def test_what_touches_no_run_passes(inventory: Inventory, effect: Effect) -> None:
    step = PlanStep(name="good", host=effect.host, summary="", effects=(effect,))
    check(Plan(title="t", steps=(step,)), protect(inventory, [seen(RUN)]))


def test_a_run_that_was_not_reached_is_protected_by_what_the_inventory_says(inventory: Inventory) -> None:
    effect = Effect.writes("ct200", "/workspace/checkpoints")
    plan = Plan(title="t", steps=(PlanStep(name="bad", host="ct200", summary="", effects=(effect,)),))
    for statuses in ([], [seen()]):
        with pytest.raises(RefusedError):
            check(plan, protect(inventory, statuses))


def test_every_process_that_fits_is_protected(inventory: Inventory) -> None:
    second = RUN.model_copy(update={"pid": 500})
    protected = protect(inventory, [seen(RUN, second)])
    assert protected.runs[0].identities == (RUN, second)
    assert protected.runs[0].hops == ("pve", "ct129")
    assert [protected.role(host) for host in ("ct201", "ct129", "other")] == [
        "the machine of run drafter",
        "the route to run drafter",
        None,
    ]


def test_a_launch_says_what_it_does(inventory: Inventory) -> None:
    spec = JobSpec(
        kind="eval", name="x", argv=("python", "eval.py"), limits={"memory_bytes": GIB, "wall_seconds": 60}
    )
    step = plan_launch("ct129", Host(address="x", state="/srv/hk"), spec)
    plan = Plan(title="evaluate", steps=(step,))
    check(plan, protect(inventory))
    document = plan.document()
    assert document["schema"] == "hostkit.plan/1"
    assert document["steps"][0]["effects"][0]["path"] == f"/srv/hk/jobs/{spec.id}"
    assert document["steps"][0]["effects"][1]["gpus"] == "none"
    assert Plan.model_validate({k: v for k, v in document.items() if k != "schema"}) == plan


def facts(available: float, free: float = 100, inodes: int | None = None) -> Facts:
    disk = {"at": "/root", "free": int(free * GIB), "total": 500 * GIB, "free_inodes": inodes}
    memory = {"total": 100 * GIB, "available": int(available * GIB)}
    return Facts.model_validate({"memory": memory, "disk": {"/root/eval": disk}, "cpus": 4, "at": 0})


NEED = Need(memory_bytes=56 * GIB, disk={"/root/eval": 4 * GIB})


@pytest.mark.report("g3")
@pytest.mark.parametrize(
    ("found", "rule"),
    [
        (facts(60.9), "headroom-memory"),
        (facts(61.1), None),
        (facts(90, free=4.9), "headroom-disk"),
        (facts(90, inodes=0), "headroom-disk"),
        (facts(90, free=5.1), None),
    ],
)
def test_a_launch_without_head_room_is_refused_with_numbers(found: Facts, rule: str | None) -> None:
    if rule is None:
        return check_head_room(found, NEED, host="ct129")
    with pytest.raises(RefusedError) as caught:
        check_head_room(found, NEED, host="ct129")
    assert caught.value.rule == rule
    needed, left, kept = re.findall(r"([\d.]+) [KMGT]iB", caught.value.what)
    assert float(needed) == (56 if rule == "headroom-memory" else 4) and float(left) > float(kept) > 0
    return None


def test_a_disk_that_was_not_looked_at_counts_as_full() -> None:
    with pytest.raises(RefusedError) as caught:
        check_head_room(facts(90), Need(disk={"/elsewhere": 1}), host="ct129")
    assert caught.value.rule == "headroom-disk"


def test_the_id_is_of_what_is_run_and_not_of_how_much_it_may_take() -> None:
    spec = JobSpec(kind="eval", name="x", argv=("a", "b"), inputs={"sha256": "1"})
    assert len(spec.id) == 16 and spec.id == JobSpec.model_validate_json(spec.model_dump_json()).id
    assert spec.id == spec.model_copy(update={"limits": {"cpus": 1}}, deep=True).id
    for change in ({"argv": ("a b",)}, {"inputs": {"sha256": "2"}}, {"env": {"A": "1"}}, {"name": "y"}):
        assert JobSpec.model_validate(spec.model_dump() | change).id != spec.id


@pytest.mark.parametrize(
    "change", [{"argv": ()}, {"argv": ("a\0",)}, {"env": {"A=B": "1"}}, {"env": {"": "1"}}, {"kind": ""}]
)
def test_a_spec_that_no_process_could_have_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        JobSpec.model_validate({"kind": "k", "name": "n", "argv": ("a",)} | change)
