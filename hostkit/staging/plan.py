"""What staging a checkpoint will do: bytes, route, method, room; and every obstacle, before a byte moves."""

from __future__ import annotations

import hashlib
import json
import posixpath
from concurrent.futures import Future
from typing import Any

from pydantic import Field

from hostkit.checkpoints.models import Candidate, Contents, File, Layout, Value
from hostkit.errors import CannotCreateError, DataError, HostkitError, UnreachableError
from hostkit.formatting import size
from hostkit.inventory.models import Inventory
from hostkit.plan import Effect, PlanStep
from hostkit.staging.inspect import inspect_checkpoint
from hostkit.staging.method import FOLDERS, Chosen, Method, choose_method
from hostkit.staging.transfer_commands import SILENCE, low_priority_argv, receive_argv, send_argv
from hostkit.staging.transfer_route import By, Way, find_way
from hostkit.transport.connections import Connections
from hostkit.transport.programs.run import run_program
from hostkit.transport.route import Route

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
    why: str = "the whole checkpoint, which goes on where it was cut"
    by: str = "pull"  # who carries: the destination pulls, the source pushes, this machine relays
    by_why: str = ""
    carried: str = "rsync"  # or stream: hostkit's own wire
    carried_why: str = ""
    route: tuple[str, ...] = ()  # from who carries to the other end; a relay's as the bytes go
    into: tuple[str, ...] = ()  # the hops to the destination, where that does not pull
    argv: tuple[str, ...] = ()  # run by who carries: rsync, or the way to the source's interpreter
    receiver: tuple[str, ...] = ()  # run by who carries: the way to the destination's interpreter
    base: str = ""  # the folder that the files' names are below
    names: str = ""
    files: tuple[File, ...] = ()
    selection: dict[str, Any] | None = None  # the smaller file, laid out; None: files as they are
    rate: int | None = None
    refused: str | None = None  # why the method that was asked for cannot be used
    unreached: str | None = None  # why there is no way between the two
    room: dict[str, Any] = Field(default_factory=dict)
    arrived: int = 0
    holder: dict[str, Any] | None = None
    staged: dict[str, Any] | None = None  # the manifest of one that is there already, not yet proven
    going: tuple[str, ...] = ()  # older staged ones of the run that are let go then; what is in use stays
    destination_tools: dict[str, str | None] = Field(default_factory=dict)

    @property
    def hops(self) -> tuple[str, ...]:
        """The route in the order of the bytes."""
        return self.route if self.by in ("push", "relay") else self.route[::-1]

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
        if self.unreached is not None:
            hint = "`--by relay` brings it through this machine; or let one of the two into the other"
            found.append(UnreachableError(self.unreached, hop=self.source, where=self.destination, hint=hint))
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
        by = {"push": f", pushed by {self.source}", "relay": ", relayed by this machine"}.get(self.by, "")
        gone = f"; then {len(going)} older staged are removed: {', '.join(going)}" if going else ""
        return PlanStep(
            name="stage",
            host=self.destination,
            summary=f"step {self.step} of {self.run} from {self.source}: {said} ({self.method}{by}){gone}",
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
    by: By = "auto",
    way: Future[Way] | None = None,
) -> StagePlan:
    """Look at both sides and plan. Writes nothing anywhere. `rate`: bytes a second at most. `by`: who carries.

    `method`: the needed tensors alone (weights), the whole checkpoint by rsync (full), or what saves bytes (auto).
    `way`: from `find_way`, where that was begun
    before the checkpoint was known; `by` counts there, then.
    """
    source = inventory.runs[run].host
    saved = inventory.runs[run].checkpoints
    finding = way or find_way(connections, inventory, source, dest_host, by)
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
        rate=rate,
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
    found = finding.result()
    there = {name: path for name, path in (reply.get("tools") or {}).items() if isinstance(name, str)}
    carried, carried_why = _carried(chosen, found, {source: contents.tools, dest_host: there})
    whole = contents.format not in FOLDERS or candidate.path.endswith(".index.json")
    base = posixpath.dirname(candidate.path) if whole else candidate.path
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
        by=found.by,
        by_why=found.why,
        carried=carried,
        carried_why=carried_why,
        route=found.route,
        into=tuple(hop.name for hop in found.into.hops) if found.into else (),
        argv=tuple(_argv(found, inventory, source, contents, there, carried, rate)),
        receiver=tuple(receive_argv(found.into, inventory, there)) if found.into else (),
        base=base,
        # "/./" ends what is left behind of the path; NUL-ended names reach no shell, whatever they hold
        names="".join(f"{base}/./{file.name}\0" for file in chosen.files) if carried == "rsync" else "",
        files=chosen.files,
        selection=chosen.selection,
        refused=chosen.refused,
        unreached=found.refused,
        rate=rate,
        room=reply.get("room", {}),
        arrived=reply.get("arrived", 0),
        holder=reply.get("holder"),
        staged=reply.get("staged"),
        going=tuple(str(path) for path in reply.get("going", ())),
        destination_tools=there,
    )


def marker_of(marker: str | None, step: int) -> str | None:
    """Return the marker's name for one step."""
    return marker.replace("{step}", str(step)) if marker else None


def _fingerprint(source: str, contents: Contents, chosen: Chosen) -> str:
    """Return eight digits that differ for another file, the same file saved again, or another choice from it."""
    files = [(file.name, file.size) for file in chosen.files]
    kept = chosen.selection["digest"] if chosen.selection else None
    identity = [source, contents.path, *contents.identity, files, kept]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:8]


def _carried(chosen: Chosen, way: Way, tools: dict[str, dict[str, str | None]]) -> tuple[str, str]:
    """Return whether rsync brings it or hostkit's own stream, and why."""
    if chosen.selection is not None:
        return "stream", "a selection is made while it is sent"
    lacking = [host for host, has in tools.items() if not has.get("rsync")]
    if lacking:
        return "stream", f"rsync missing on {' and '.join(lacking)}"
    if way.by == "relay":
        return "stream", "no rsync copies between two other hosts"
    if way.prints:
        return "stream", "a login shell on the way prints, which rsync would take for data"
    return "rsync", "both sides have it"


def _argv(
    way: Way,
    inventory: Inventory,
    source: str,
    contents: Contents,
    there: dict[str, str | None],
    carried: str,
    rate: int | None,
) -> list[str]:
    """Return the words that who carries runs to get at the bytes."""
    if carried == "rsync":
        if way.out is None:
            return _pushing(contents, rate)
        return _pulling(way.out, contents, there, rate)
    if way.out is not None:
        return send_argv(way.out, inventory, contents.tools)
    return [inventory.hosts[source].python, "-I", "-S", "-B", "-"]


def _pulling(route: Route, contents: Contents, tools: dict[str, str | None], rate: int | None) -> list[str]:
    """Return the rsync command for the destination, without its last word (where to)."""
    there = route.rsync_source()
    far = [*low_priority_argv(contents.tools), contents.tools.get("rsync") or "rsync"]
    if there.rsync_path:
        there = type(there)(there.rsh, there.host, (*there.rsync_path[:-1], *far))
    return [tools.get("rsync") or "rsync", *_options(contents, rate), *there.options(), there.spec("/")]


def _pushing(contents: Contents, rate: int | None) -> list[str]:
    """Return the rsync command for the source; its carrier adds how the receiver is reached, and where to."""
    return [contents.tools.get("rsync") or "rsync", *_options(contents, rate), "/"]


def _options(contents: Contents, rate: int | None) -> list[str]:
    # --append goes on at the exact byte, so that the source reads nothing twice; the CRCs then prove the whole.
    # Formats without CRCs are compared block by block instead.
    resume = "--append" if contents.format in CHECKED_FORMATS else "--inplace"
    limit = [f"--bwlimit={max(1, rate // 1024)}k"] if rate else []
    # whoever stages can read and go on with what came, whatever the source's own mode is
    mode = "--chmod=u+rwX"
    return ["-t", "--copy-links", mode, resume, f"--timeout={SILENCE}", *limit, "--files-from=-", "--from0"]
