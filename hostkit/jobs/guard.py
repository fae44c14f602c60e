"""What no plan may do to a live run: signal it, write its files, share its GPUs, starve it or the route to it."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from hostkit.errors import RefusedError
from hostkit.identity import Identity
from hostkit.inventory.models import Inventory
from hostkit.jobs.headroom import Facts, Need, check_head_room
from hostkit.plan import Effect, Plan, PlanStep

__all__ = ["Facts", "Need", "Protected", "ProtectedRun", "check", "check_head_room", "protect"]


class SeenProcess(Protocol):
    """A process of a run, as liveness saw it."""

    @property
    def identity(self) -> Identity: ...


class SeenLog(Protocol):
    """The log that a run was found to write."""

    @property
    def path(self) -> str | None: ...


class SeenRun(Protocol):
    """What liveness saw of a run; its processes are empty where it was not reached."""

    @property
    def run(self) -> str: ...
    @property
    def processes(self) -> Iterable[SeenProcess]: ...
    @property
    def log(self) -> SeenLog: ...


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
    endpoints: dict[str, str] = {}
    containers: frozenset[str] = frozenset()

    def machine(self, host: str) -> str:
        return self.machines.get(host, host)

    def same_files(self, host: str, run: ProtectedRun) -> bool:
        """Say whether a path on this host may be the same file as on the run's: by name, endpoint or machine.

        Two Proxmox containers of one machine, and a container and its node, have file systems of their own.
        """
        if host == run.host or self.endpoints.get(host, host) == self.endpoints.get(run.host, run.host):
            return True
        separate = host in self.containers and run.host in self.containers
        node = run.machine == host or self.machine(host) == run.host
        return self.machine(host) == run.machine and not separate and not node

    def role(self, host: str) -> str | None:
        """Say what a host is to a run; None when it has nothing to do with any."""
        for run in self.runs:
            if self.machine(host) == run.machine:
                return f"the machine of run {run.name}"
        for run in self.runs:
            if host in run.hops:
                return f"the route to run {run.name}"
        return None


def protect(inventory: Inventory, statuses: Iterable[SeenRun] = ()) -> Protected:
    """Build what is protected from the inventory and from what was seen of its runs.

    A run that was not reached is protected all the same, by everything that the inventory says of it.
    """
    seen: dict[str, list[Identity]] = {}
    logs: dict[str, str] = {}
    for status in statuses:
        seen.setdefault(status.run, []).extend(process.identity for process in status.processes)
        if status.log.path is not None:
            logs[status.run] = status.log.path
    machines = {name: _machine(inventory, name) for name in inventory.hosts}
    runs = []
    for name, run in inventory.runs.items():
        paths = [run.checkpoints.root] if run.checkpoints else []
        paths += [path for path in (run.log.path, logs.get(name)) if path]
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
    return Protected(
        runs=tuple(runs),
        machines=machines,
        endpoints={name: _endpoint(inventory, name) for name in inventory.hosts},
        containers=frozenset(name for name, host in inventory.hosts.items() if host.pct is not None),
    )


def _endpoint(inventory: Inventory, name: str) -> str:
    """Return what a host is reached as, without the way to it: two names with one of it are one host."""
    host = inventory.hosts[name]
    if host.local:
        return "this machine"
    if host.pct is not None:
        node = _endpoint(inventory, host.via) if host.via in inventory.hosts else str(host.via)
        return f"{node} pct {host.pct}"
    return f"{host.alias or host.address} port {host.port or 22}"


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
    same_machine = protected.machine(effect.host) == run.machine
    if effect.kind == "signals":
        if effect.identity is None or effect.identity.pid <= 1:
            raise refuse(step, "no-signal", "it signals a process whose identity is unknown")
        if same_machine and effect.identity in run.identities:
            raise refuse(step, "no-signal", f"it signals pid {effect.identity.pid}, which is run {run.name}")
    elif effect.kind == "writes" and protected.same_files(effect.host, run):
        if effect.path is None:
            raise refuse(
                step, "no-write", f"it declares a write without a path on the host of run {run.name}"
            )
        for path in run.paths:
            if _overlap(effect.path, path):
                raise refuse(step, "no-write", f"it writes {effect.path}; {path} belongs to run {run.name}")
    elif effect.kind == "spawns":
        if same_machine and _shares(effect, run):
            raise refuse(step, "no-gpu", f"its process would see GPUs of run {run.name}")
        limits = effect.limits
        if limits is None or limits.memory_bytes is None:
            if same_machine:
                raise refuse(step, "memory-limit", f"its process has no memory limit beside run {run.name}")
            if effect.host in run.hops:
                raise refuse(
                    step, "hop-reserve", f"its process has no memory limit on the route to run {run.name}"
                )


def _shares(effect: Effect, run: ProtectedRun) -> bool:
    if effect.gpus == "none" or not run.gpus:
        return False
    return effect.gpus == "any" or bool(set(effect.gpus) & set(run.gpus))


def _overlap(path: str, other: str) -> bool:
    """Say whether one path is the other, or lies below it, or above it."""
    first, second = (posixpath.normpath(each).strip("/").split("/") for each in (path, other))
    shorter = min(len(first), len(second))
    return first[:shorter] == second[:shorter]


def refuse(step: PlanStep, rule: str, why: str) -> RefusedError:
    """Return the error of a step that the guard refuses."""
    return RefusedError(f"step {step.name}: {why}", rule=rule, where=step.host, hint="nothing was done")
