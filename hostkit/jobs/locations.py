"""Where the paths of a plan really are, held against a run's files by device and inode.

A second inventory name, a link, a container's root seen from its node or through /proc: none of these hides a
run's file, since device and inode mean the same within one boot of one kernel.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pydantic import BaseModel, ConfigDict

from hostkit.errors import DataError, UnreachableError
from hostkit.inventory.models import Inventory
from hostkit.jobs.guard import Protected, ProtectedRun, check, refuse
from hostkit.plan import Plan
from hostkit.transport.connections import THIS_MACHINE, Connections
from hostkit.transport.programs.run import run_program

BOOT_TOLERANCE = 0.05  # seconds: one clock read twice differs by microseconds, two machines by more
BUDGET = 30.0  # seconds; it only asks for the status of files


class Location(BaseModel):
    """A path: identities (device, inode) from its deepest part that exists upwards, and the names below that."""

    model_config = ConfigDict(frozen=True)

    chain: tuple[tuple[int, int], ...]
    rest: tuple[str, ...] = ()

    def overlaps(self, other: Location) -> bool:
        """Say whether one is the other, or lies below it, or above it."""
        if not self.chain or not other.chain:
            return False
        if not other.rest and other.chain[0] in self.chain:
            return True
        if not self.rest and self.chain[0] in other.chain:
            return True
        shorter = min(len(self.rest), len(other.rest))
        return self.chain[0] == other.chain[0] and self.rest[:shorter] == other.rest[:shorter]


class Locations(BaseModel):
    """The locations of some paths of one host, and when its kernel booted."""

    model_config = ConfigDict(frozen=True)

    booted_at: float
    paths: dict[str, Location]

    def same_kernel(self, other: Locations) -> bool:
        """Say whether both were told by one kernel: only then do device and inode mean the same."""
        return abs(self.booted_at - other.booted_at) < BOOT_TOLERANCE


def guard(
    connections: Connections, inventory: Inventory, plan: Plan, protected: Protected, runs: Iterable[str] = ()
) -> None:
    """Refuse a plan that would touch a run: by what it says, then by where its writes really are.

    `runs`: those that were observed. Their hosts, and those of runs that share a machine with a host that is
    written to, are asked where the runs' files are; one that cannot be asked is protected by its names alone.
    """
    check(plan, protected)
    writes: dict[str, set[str]] = {}
    for _, effect in plan.effects():
        if effect.kind == "writes" and effect.path is not None:
            writes.setdefault(effect.host, set()).add(effect.path)
    machines = {protected.machine(host) for host in writes}
    observed = set(runs)
    asked = [run for run in protected.runs if run.paths and (run.name in observed or run.machine in machines)]
    if not writes or not asked:
        return
    with ThreadPoolExecutor(len(writes) + len(asked)) as pool:
        targets = {
            host: pool.submit(locate, connections, inventory, host, paths) for host, paths in writes.items()
        }
        files = {
            run.name: pool.submit(locate, connections, inventory, run.host, set(run.paths)) for run in asked
        }
    found = {host: future.result() for host, future in targets.items()}
    for run in asked:
        try:
            theirs = files[run.name].result()
        except (UnreachableError, DataError):
            continue
        check_locations(plan, run, found, theirs)


def locate(connections: Connections, inventory: Inventory, host: str, paths: set[str]) -> Locations:
    """Ask a host where these paths are."""
    if host == THIS_MACHINE:
        transport, python = connections.machine(), sys.executable
    else:
        transport, python = connections.transport(host), inventory.hosts[host].python
    request: dict[str, Any] = {"paths": sorted(paths)}
    reply = run_program(transport, python, "path_identity", request, timeout=BUDGET, retry=True)
    return Locations.model_validate(reply)


def check_locations(plan: Plan, run: ProtectedRun, targets: dict[str, Locations], files: Locations) -> None:
    """Raise RefusedError for the first write that is really among the run's files."""
    for step, effect in plan.effects():
        target = targets.get(effect.host)
        if effect.kind != "writes" or effect.path is None or target is None:
            continue
        if not target.same_kernel(files):
            continue
        location = target.paths.get(effect.path)
        for path, theirs in files.paths.items():
            if location is not None and location.overlaps(theirs):
                raise refuse(
                    step,
                    "no-write",
                    f"{effect.host}:{effect.path} is really among the files of run {run.name} ({path})",
                )
