"""What no plan may do beside a live run: signal it, write its files, share its GPUs, starve it or its way in."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field

from hostkit.errors import RefusedError
from hostkit.identity import Identity
from hostkit.inventory.models import Inventory
from hostkit.plan import Effect, Plan, PlanStep

GIB = 2**30


class SeenProcess(Protocol):
    """A process of a run, as liveness saw it."""

    @property
    def identity(self) -> Any: ...


class SeenRun(Protocol):
    """What liveness saw of a run; its processes are empty where it was not reached."""

    @property
    def run(self) -> str: ...
    @property
    def processes(self) -> Iterable[SeenProcess]: ...


class ProtectedRun(BaseModel):
    """One run: where it lives, its processes, files and GPUs, and the hosts on the way to it."""

    model_config = ConfigDict(frozen=True)

    name: str
    host: str
    machine: str
    identities: tuple[Identity, ...] = ()
    paths: tuple[str, ...] = ()
    gpus: tuple[int, ...] = ()
    hops: tuple[str, ...] = ()


class Protected(BaseModel):
    """All runs that a plan is held against, and which physical machine each host is on."""

    model_config = ConfigDict(frozen=True)

    runs: tuple[ProtectedRun, ...] = ()
    machines: dict[str, str] = {}

    def machine(self, host: str) -> str:
        return self.machines.get(host, host)

    def role(self, host: str) -> str | None:
        """Say what a host is to a run, in words; None when it is nothing to any."""
        for run in self.runs:
            if self.machine(host) == run.machine:
                return f"the machine of run {run.name}"
        for run in self.runs:
            if host in run.hops:
                return f"the way to run {run.name}"
        return None


def protect(inventory: Inventory, statuses: Iterable[SeenRun] = ()) -> Protected:
    """Build what is protected from the inventory and from what was seen of its runs.

    A run that was not reached is protected all the same, by everything that the inventory says of it.
    """
    seen: dict[str, list[Identity]] = {}
    for status in statuses:
        found = seen.setdefault(status.run, [])
        for process in status.processes:
            identity = process.identity
            if identity is not None:
                found.append(
                    Identity.model_validate(identity if isinstance(identity, dict) else identity.model_dump())
                )
    machines = {name: _machine(inventory, name) for name in inventory.hosts}
    runs = []
    for name, run in inventory.runs.items():
        paths = [run.checkpoints.root] if run.checkpoints else []
        paths += [run.log.path] if run.log.path else []
        paths += [run.process.pidfile] if run.process.pidfile else []
        paths += [run.save_on.file] if run.save_on else []
        runs.append(
            ProtectedRun(
                name=name,
                host=run.host,
                machine=machines[run.host],
                identities=tuple(seen.get(name, ())),
                paths=tuple(paths),
                gpus=tuple(run.gpus),
                hops=tuple(_hops(inventory, run.host)),
            )
        )
    return Protected(runs=tuple(runs), machines=machines)


def _machine(inventory: Inventory, name: str) -> str:
    """Return the physical machine: declared; for a container that of its Proxmox host; else the host itself."""
    host = inventory.hosts[name]
    if host.machine is not None:
        return host.machine
    if host.pct is not None and host.via in inventory.hosts:
        return _machine(inventory, host.via)
    return name


def _hops(inventory: Inventory, name: str) -> list[str]:
    found: list[str] = []
    via = inventory.hosts[name].via
    while via is not None and via in inventory.hosts and via not in found:
        found.append(via)
        via = inventory.hosts[via].via
    return found


def check(plan: Plan, protected: Protected) -> None:
    """Raise RefusedError for the first effect that would touch a protected run, naming step and rule."""
    for step, effect in plan.effects():
        for run in protected.runs:
            _check_one(step, effect, run, protected)


def _check_one(step: PlanStep, effect: Effect, run: ProtectedRun, protected: Protected) -> None:
    if effect.by_name == run.name:
        return  # train-stop and request-checkpoint: by name, and by what the inventory declares
    same_machine = protected.machine(effect.host) == run.machine
    if effect.kind == "signals":
        if effect.identity is None or effect.identity.pid <= 1:
            raise _refuse(step, "no-signal", "it signals a process whose identity is not known")
        if same_machine and effect.identity in run.identities:
            raise _refuse(step, "no-signal", f"it signals pid {effect.identity.pid}, which is run {run.name}")
    elif effect.kind == "writes" and effect.host == run.host and effect.path is not None:
        for path in run.paths:
            if _overlap(effect.path, path):
                raise _refuse(step, "no-write", f"it writes {effect.path}; {path} belongs to run {run.name}")
    elif effect.kind == "spawns":
        if same_machine and _shares(effect, run):
            raise _refuse(step, "no-gpu", f"its process would see GPUs of run {run.name}")
        limits = effect.limits
        if limits is None or limits.memory_bytes is None:
            if same_machine:
                raise _refuse(step, "memory-limit", f"its process has no memory limit beside run {run.name}")
            if effect.host in run.hops:
                raise _refuse(
                    step, "hop-reserve", f"its process has no memory limit on the way to run {run.name}"
                )


def _shares(effect: Effect, run: ProtectedRun) -> bool:
    if effect.gpus == "none" or not run.gpus:
        return False
    return effect.gpus == "any" or bool(set(effect.gpus) & set(run.gpus))


def _overlap(one: str, other: str) -> bool:
    """Say whether one path is the other, or lies below it, or above it."""
    first, second = (posixpath.normpath(path).strip("/").split("/") for path in (one, other))
    shorter = min(len(first), len(second))
    return first[:shorter] == second[:shorter]


def _refuse(step: PlanStep, rule: str, why: str) -> RefusedError:
    return RefusedError(f"step {step.name}: {why}", rule=rule, where=step.host, hint="nothing was done")


class Memory(BaseModel):
    """Memory of a host in bytes; `bound_by`: the control group that leaves less than the machine has."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    total: int
    available: int
    bound_by: str | None = None


class Disk(BaseModel):
    """Space of the file system that `at`, or what stands above it, is on."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    at: str
    free: int
    total: int
    free_inodes: int | None = None


class Facts(BaseModel):
    """What a host has left, by its own account."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    memory: Memory
    disk: dict[str, Disk] = {}
    cpus: int
    load: tuple[float, float, float] = (0.0, 0.0, 0.0)
    at: float
    boot_id: str = ""


class Need(BaseModel):
    """What a launch would take, and what must stay free beside it; by path for disks.

    `memory_reserve_bytes`: None keeps a twentieth of the machine's memory, and half a GiB at least, for sshd, for
    the page cache that a run reads through, and for the growth of what runs there already.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    memory_bytes: int = Field(0, ge=0)
    memory_reserve_bytes: int | None = Field(None, ge=0)
    disk: Mapping[str, int] = {}
    disk_reserve_bytes: int = Field(GIB, ge=0)

    def reserve(self, total: int) -> int:
        if self.memory_reserve_bytes is not None:
            return self.memory_reserve_bytes
        return max(GIB // 2, total // 20)


def check_head_room(facts: Facts, need: Need, *, host: str) -> None:
    """Raise RefusedError, with numbers, when the host has not enough left for what is needed."""
    memory, reserve = facts.memory, need.reserve(facts.memory.total)
    if need.memory_bytes and memory.available - reserve < need.memory_bytes:
        bound = f" (bound by {memory.bound_by})" if memory.bound_by else ""
        raise RefusedError(
            f"it needs {_gib(need.memory_bytes)} of memory; {_gib(memory.available)} are available{bound}, "
            f"of which {_gib(reserve)} are kept free",
            rule="headroom-memory",
            where=host,
            hint="wait until memory is free there, use a smaller model or limit, or another host",
        )
    for path, wanted in need.disk.items():
        disk = facts.disk.get(path)
        if disk is None:
            raise RefusedError(f"the space at {path} is not known", rule="headroom-disk", where=host)
        if disk.free - need.disk_reserve_bytes < wanted or disk.free_inodes == 0:
            inodes = ", and no inode is" if disk.free_inodes == 0 else ""
            raise RefusedError(
                f"it needs {_gib(wanted)} at {path}; {_gib(disk.free)} are free{inodes}, "
                f"of which {_gib(need.disk_reserve_bytes)} are kept free",
                rule="headroom-disk",
                where=host,
                hint="free some space there",
            )


def _gib(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB // 10 else f"{count / 2**20:.1f} MiB"
