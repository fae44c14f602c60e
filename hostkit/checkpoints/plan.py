"""What staging a checkpoint will do: bytes, route, method, room; and every obstacle, before a byte moves."""

from __future__ import annotations

import hashlib
import json
import posixpath
from typing import Any

from pydantic import Field

from hostkit.checkpoints.method import FOLDERS, Chosen, Method, choose_method
from hostkit.checkpoints.models import Candidate, Contents, File, Layout, Value
from hostkit.checkpoints.pulling import command
from hostkit.checkpoints.reading import inspect_checkpoint
from hostkit.errors import CannotCreateError, DataError, HostkitError
from hostkit.inventory.models import Inventory
from hostkit.liveness.words import size
from hostkit.plan import Effect, PlanStep
from hostkit.transport.connections import Connections
from hostkit.transport.program import run_program
from hostkit.transport.route import Route

SILENCE = 120  # seconds without a byte after which rsync gives up; what has come stays
KEEP = 3  # staged checkpoints of a run that stay
CHECKED_FORMATS = ("torch-zip",)  # formats with a CRC of every byte: a resumed copy of them can be proven


class StagePlan(Value):
    """One staging, planned."""

    run: str
    step: int
    source: str
    source_path: str
    destination: str
    folder: str
    name: str
    entry: str  # the checkpoint's path below its staged folder; "." where that folder is the checkpoint
    format: str | None
    bytes: int
    contents: Contents
    method: str = "full"
    why: str = "the whole checkpoint by rsync, which goes on where it was cut"
    route: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()  # run on the destination: rsync, or the way to the source's interpreter
    names: str = ""
    files: tuple[File, ...] = ()
    selection: dict[str, Any] | None = None  # the smaller file, laid out; None: files as they are
    rate: int | None = None
    refused: str | None = None  # why the method that was asked for cannot be used
    room: dict[str, Any] = Field(default_factory=dict)
    arrived: int = 0
    holder: dict[str, Any] | None = None
    staged: dict[str, Any] | None = None  # the manifest of one that is there already, not yet proven
    going: tuple[str, ...] = ()  # older staged ones of the run that are let go then; what is in use stays
    destination_tools: dict[str, str | None] = Field(default_factory=dict)

    @property
    def path(self) -> str:
        """Where the checkpoint will be."""
        return posixpath.normpath(posixpath.join(self.folder, self.name, self.entry))

    @property
    def need(self) -> int:
        """Bytes that are still to come."""
        return 0 if self.staged else max(0, self.bytes - self.arrived)

    def obstacles(self) -> list[HostkitError]:
        """Return everything that stands in the way, worst first."""
        found: list[HostkitError] = []
        contents = self.contents
        if not contents.complete:
            what = "source vanished" if contents.code == "vanished" else f"not complete: {contents.reason}"
            return [DataError(f"{self.source_path}: {what}", where=self.source, hint="choose again")]
        if self.refused:
            hint = "`--full` copies the whole checkpoint"
            return [DataError(f"{self.source_path}: {self.refused}", where=self.source, hint=hint)]
        if self.staged:
            return []
        for host, tools in ((self.source, contents.tools), (self.destination, self.destination_tools)):
            if not tools.get("rsync") and self.selection is None:
                hint = "install rsync there; hostkit installs nothing"
                found.append(CannotCreateError(f"rsync missing on {host}", where=host, hint=hint))
        free, reserve = int(self.room.get("free", 0)), int(self.room.get("reserve", 0))
        where = f"{self.destination}:{self.folder}"
        if self.need and self.need + reserve > free:
            found.append(
                CannotCreateError(
                    f"not enough space: {self.need} bytes to come, {free} free, of which {reserve} stay free",
                    where=where,
                    hint="free space there, or stage to another folder or host",
                )
            )
        inodes = self.room.get("inodes")
        if inodes is not None and inodes < len(self.files) + 8:
            found.append(CannotCreateError(f"not enough inodes: {inodes} free", where=where))
        if not self.room.get("writable", True):
            found.append(
                CannotCreateError(f"no permission to write in {self.room.get('folder')}", where=where)
            )
        return found

    def step_of_plan(self) -> PlanStep:
        """Return the step that a plan shows, the guard checks and an archive keeps."""
        going = () if self.staged else self.going
        said = f"already at {self.path}" if self.staged else f"{size(self.need)} to {self.path}"
        gone = f"; then {len(going)} older staged are removed: {', '.join(going)}" if going else ""
        return PlanStep(
            name="stage",
            host=self.destination,
            summary=f"step {self.step} of {self.run} from {self.source}: {said} ({self.method}){gone}",
            effects=(
                Effect.reads(self.source, self.source_path, size=self.need),
                Effect.writes(self.destination, posixpath.join(self.folder, self.name), size=self.need),
                Effect.writes(self.destination, posixpath.join(self.folder, ".staging")),
                *(Effect.writes(self.destination, path) for path in going),
            ),
        )


def plan_stage(
    connections: Connections,
    inventory: Inventory,
    run: str,
    candidate: Candidate,
    dest_host: str,
    dest_dir: str,
    *,
    contents: Contents | None = None,
    method: Method = "auto",
    rate: int | None = None,
    keep: int = KEEP,
) -> StagePlan:
    """Look at both sides and plan. Writes nothing anywhere. `rate`: bytes a second at most.

    `method`: the needed tensors alone (weights), the whole checkpoint by rsync (full), or what saves bytes (auto).
    """
    source = inventory.runs[run].host
    saved = inventory.runs[run].checkpoints
    if contents is None:
        contents = inspect_checkpoint(
            connections.transport(source),
            inventory.hosts[source].python,
            candidate.path,
            marker=marker_of(saved.marker if saved else None, candidate.step),
            layout=Layout.of(saved),
        )
    chosen = choose_method(
        connections,
        inventory,
        source,
        contents,
        Layout.of(saved),
        method=method,
        own_harness=any(one.run == run and one.harness != "dflash" for one in inventory.evals.values()),
    )
    name = f"{run}-step{candidate.step}-{_fingerprint(source, contents, chosen)}"
    reply = run_program(
        connections.transport(dest_host),
        inventory.hosts[dest_host].python,
        "receiver",
        {
            "op": "prepare",
            "folder": dest_dir,
            "name": name,
            "run": run,
            "keep": keep,
            "state": inventory.hosts[dest_host].state,
        },
        timeout=60,
        retry=True,
    )
    route = route_between(connections, inventory, source, dest_host)
    whole = contents.format not in FOLDERS or candidate.path.endswith(".index.json")
    base = posixpath.dirname(candidate.path) if whole else candidate.path
    selected = chosen.selection is not None
    return StagePlan(
        run=run,
        step=candidate.step,
        source=source,
        source_path=candidate.path,
        destination=dest_host,
        folder=dest_dir,
        name=name,
        entry=posixpath.basename(candidate.path) if whole else ".",
        format=contents.format,
        bytes=chosen.selection["size"] if chosen.selection else sum(file.size for file in chosen.files),
        contents=contents,
        method=chosen.method,
        why=chosen.why,
        route=tuple(hop.name for hop in route.hops),
        argv=tuple(
            command(route, inventory, contents.tools)
            if selected
            else _rsync(route, contents, reply.get("tools", {}), rate)
        ),
        # "/./" ends what is left behind of the path; NUL-ended names reach no shell, whatever they hold
        names="" if selected else "".join(f"{base}/./{file.name}\0" for file in chosen.files),
        files=chosen.files,
        selection=chosen.selection,
        refused=chosen.refused,
        rate=rate,
        room=reply.get("room", {}),
        arrived=reply.get("arrived", 0),
        holder=reply.get("holder"),
        staged=reply.get("staged"),
        going=tuple(str(path) for path in reply.get("going", ())),
        destination_tools=reply.get("tools", {}),
    )


def marker_of(marker: str | None, step: int) -> str | None:
    """Return the marker's name for one step."""
    return marker.replace("{step}", str(step)) if marker else None


def route_between(connections: Connections, inventory: Inventory, source: str, destination: str) -> Route:
    """Return the route by which the destination itself reaches the source."""
    if inventory.hosts[destination].local and connections.here is None:
        return Route.to(inventory, source)  # this machine: the inventory's paths are as seen from here
    return Route.to(inventory, source, here=destination)


def _fingerprint(source: str, contents: Contents, chosen: Chosen) -> str:
    """Return eight digits that differ for another file, the same file saved again, or another choice from it."""
    files = [(file.name, file.size) for file in chosen.files]
    kept = chosen.selection["digest"] if chosen.selection else None
    identity = [source, contents.path, *contents.identity, files, kept]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:8]


def _rsync(route: Route, contents: Contents, tools: dict[str, str | None], rate: int | None) -> list[str]:
    """Return the rsync command for the destination, without its last word (where to)."""
    there = route.rsync_source()
    far = [contents.tools.get("rsync") or "rsync"]
    if contents.tools.get("ionice"):
        far = ["ionice", "-c3", *far]
    if contents.tools.get("nice"):
        far = ["nice", "-n19", *far]
    if there.rsync_path:
        there = type(there)(there.rsh, there.host, (*there.rsync_path[:-1], *far))
    # --append goes on at the exact byte, so that the source reads nothing twice; the CRCs then prove the whole.
    # Formats without CRCs are compared block by block instead.
    resume = "--append" if contents.format in CHECKED_FORMATS else "--inplace"
    limit = [f"--bwlimit={max(1, rate // 1024)}k"] if rate else []
    fixed = ["-t", "--copy-links", resume, f"--timeout={SILENCE}", *limit, "--files-from=-", "--from0"]
    return [tools.get("rsync") or "rsync", *fixed, *there.options(), there.spec("/")]
