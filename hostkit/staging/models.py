"""A staging, planned: what is copied from where to where, by whom and how, and what stands in the way."""

from __future__ import annotations

import posixpath
from typing import Any

from pydantic import Field

from hostkit.checkpoints.models import Contents, File, Value
from hostkit.errors import CannotCreateError, DataError, HostkitError, UnreachableError
from hostkit.formatting import size
from hostkit.plan import Effect, PlanStep


class StagePlan(Value):
    """One staging, planned."""

    run: str
    step: int
    source: str
    source_path: str
    destination: str
    folder: str
    keep: int | None = None  # how many staged checkpoints of the run stay; None: all
    name: str
    entry: str  # the checkpoint's path below its staged folder; "." where that folder is the checkpoint
    format: str | None
    bytes: int
    contents: Contents
    method: str = "full"
    why: str = "the whole checkpoint; an interrupted copy can resume"
    by: str = "pull"  # who carries: the destination pulls, the source pushes, this machine relays
    by_why: str = ""
    via: str = "rsync"  # or stream: hostkit's own wire
    via_why: str = ""
    route: tuple[str, ...] = ()  # from who carries to the other end; a relay's as the bytes go
    into: tuple[str, ...] = ()  # the hops to the destination, where that does not pull
    argv: tuple[str, ...] = ()  # run by who carries: rsync, or the way to the source's interpreter
    receiver: tuple[str, ...] = ()  # run by who carries: the way to the destination's interpreter
    base: str = ""  # the folder that the files' names are below
    names: str = ""
    files: tuple[File, ...] = ()
    selection: dict[str, Any] | None = None  # the smaller file, laid out; None: files as they are
    rate: int | None = None
    refused: str | None = None  # why the method that was requested cannot be used
    unreached: str | None = None  # why there is no way between the two
    room: dict[str, Any] = Field(default_factory=dict)
    arrived: int = 0
    holder: dict[str, Any] | None = None
    staged: dict[str, Any] | None = None  # the manifest of one that is there already, not yet proven
    prunable: tuple[str, ...] = ()  # older staged ones of the run that are let go then; what is in use stays
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
        obstacles: list[HostkitError] = []
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
            hint = "`--by relay` copies through this machine; or allow SSH between the two hosts"
            obstacles.append(
                UnreachableError(self.unreached, hop=self.source, where=self.destination, hint=hint)
            )
        free, reserve = int(self.room.get("free", 0)), int(self.room.get("reserve", 0))
        where = f"{self.destination}:{self.folder}"
        amounts = f"{size(self.need)} to copy, {size(free)} free, of which {size(reserve)} stay free"
        if self.need and self.need + reserve > free:
            obstacles.append(
                CannotCreateError(
                    f"not enough space: {amounts}",
                    where=where,
                    hint="free space there, or stage to another folder or host",
                )
            )
        inodes = self.room.get("inodes")
        if inodes is not None and inodes < len(self.files) + 8:
            obstacles.append(CannotCreateError(f"not enough inodes: {inodes} free", where=where))
        if not self.room.get("writable", True):
            obstacles.append(
                CannotCreateError(f"no permission to write in {self.room.get('folder')}", where=where)
            )
        return obstacles

    def step_of_plan(self) -> PlanStep:
        """Return the step that a plan shows, the guard checks and an archive keeps."""
        going = () if self.staged else self.prunable
        said = f"already at {self.path}" if self.staged else f"{size(self.need)} to {self.path}"
        by = {"push": f", pushed by {self.source}", "relay": ", relayed by this machine"}.get(self.by, "")
        gone = (
            f"; then {len(going)} older staged checkpoints are removed: {', '.join(going)}" if going else ""
        )
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
