"""Bring a checkpoint from where it is written to where it is read: whole, proven, under its final name, or not at all.

The destination pulls, the source pushes, or this machine relays, as the plan says. Nothing is hashed on the source.
"""

from __future__ import annotations

import hashlib
import posixpath
import threading
import time
from collections.abc import Callable
from typing import Any

from pydantic import Field

from hostkit.checkpoints.models import Value
from hostkit.errors import BusyError, CannotCreateError, DataError, HostkitError
from hostkit.formatting import size
from hostkit.inventory.models import Inventory
from hostkit.staging.carry import carry
from hostkit.staging.inspect import look
from hostkit.staging.models import StagePlan
from hostkit.staging.plan import marker_of
from hostkit.staging.rsync_exit import failure
from hostkit.staging.transfer_commands import broken, pull_request, refusal
from hostkit.transport.connections import Connections
from hostkit.transport.programs.run import run_program

TRIES = 3  # of a copy that went on from an earlier one and then did not prove whole
POLL = 1.0  # seconds between two looks at the copy's progress

Progress = Callable[[str, int, int], None]
"""Called with the phase (copy, wait, prove), the bytes there so far, and the bytes in all."""


class Staged(Value):
    """A staged checkpoint: where it is, what proves it, and how it came."""

    path: str
    host: str
    sha256: str
    bytes: int
    step: int
    route: tuple[str, ...]  # from who carried it to the other end; a relay's as the bytes went
    method: str
    by: str = "pull"
    reused: bool = False
    resumed_at: int = 0
    seconds: float = 0.0
    crc_proven: int = 0
    crc_unrecorded: int = 0
    removed: tuple[str, ...] = ()
    manifest: dict[str, Any] = Field(default_factory=dict)


def stage(
    connections: Connections,
    inventory: Inventory,
    plan: StagePlan,
    *,
    progress: Progress | None = None,
    poll: float = POLL,
) -> Staged:
    """Stage what was planned, or find it staged.

    `poll`: seconds between two calls of `progress` amid the copy, since each asks the destination.
    """
    began = time.monotonic()
    return _Staging(connections, inventory, plan, progress or _silent, poll).go(began)


def _silent(_phase: str, _done: int, _total: int) -> None:
    """Nobody watches."""


class _Staging:
    def __init__(
        self,
        connections: Connections,
        inventory: Inventory,
        plan: StagePlan,
        progress: Progress,
        poll: float,
    ) -> None:
        self.connections = connections
        self.inventory = inventory
        self.plan = plan
        self.progress = progress
        self.poll = poll
        self.tries = 0
        self.disproved: float | None = None  # when what did not prove was staged: it may be replaced

    def go(self, began: float) -> Staged:
        plan = self.plan
        for obstacle in plan.obstacles():
            raise obstacle
        staged = self._staged_already(began) if plan.staged else None
        while staged is None:
            reply = self._receive()
            if reply.get("refused") == "busy":
                self._wait()  # another command copies the very same: what it brings is ours too
                staged = self._staged_already(began)
                continue
            if reply.get("refused") == "published":
                staged = self._staged_already(began)
                continue
            resumed = reply.get("resumed_at", 0)
            self._judge(reply)
            if "damaged" in reply:
                self._damaged(reply, resumed)
                continue
            if plan.selection is None:
                self._same_source()
            staged = self._publish(reply, resumed, began)
        return staged

    def _damaged(self, reply: dict[str, Any], resumed: int) -> None:
        """Return where what lay there from before may be at fault, which is thrown away then; raise otherwise."""
        self.tries += 1
        if resumed and self.tries < TRIES:
            if self.plan.selection is None:
                self._receiver("discard")  # a selection goes on at its last good record instead
            return
        if self.plan.selection is None:
            self._same_source()  # written amid the copy, it is of two saves, and no disk is at fault
        self._receiver("discard")
        raise DataError(
            f"verification of the copy failed: {reply['damaged']}",
            where=f"{self.plan.source}:{self.plan.source_path}",
            hint="damaged on the source's disk, or on the way; nothing was staged",
        )

    def _staged_already(self, began: float) -> Staged | None:
        self.progress("prove", self.plan.bytes, self.plan.bytes)
        reply = self._receiver("prove", retry=True)
        if not reply.get("proven"):
            self.disproved = reply.get("staged_at")
            return None
        return self._result(reply["manifest"], began, reused=True)

    def _receive(self) -> dict[str, Any]:
        """Run the copy, while another thread tells how far it is.

        It runs in this thread, and its receiver listens: when this command is interrupted or ends in any way, the
        copy ends with it. What has come stays, for the next one.
        """
        over = threading.Event()
        teller = threading.Thread(target=self._tell, args=(over,), daemon=True, name="stage")
        if self.progress is not _silent:
            teller.start()
        try:
            if self.plan.by != "pull":
                return carry(self.connections, self.inventory, self.plan, self.disproved)
            self.connections.close_multiplexer(self.plan.source)  # the copy has its own way there
            op, request = pull_request(self.plan)
            return self._receiver(op, listen=True, disproved=self.disproved, **request)
        finally:
            over.set()

    def _tell(self, over: threading.Event) -> None:
        while not over.wait(self.poll):
            try:
                done = int(self._progress().get("arrived", 0))
            except HostkitError:
                continue  # the copy itself says what is wrong
            except Exception:
                if over.is_set():
                    return  # interrupted: the connections are being closed under us
                raise
            if not over.is_set():
                self.progress("prove" if done >= self.plan.bytes else "copy", done, self.plan.bytes)

    def _progress(self) -> dict[str, Any]:
        return self._receiver("progress", retry=True, timeout=60)

    def _wait(self) -> None:
        """Wait until nobody else copies, as long as that copy moves."""
        newest, since = -1, time.monotonic()
        while True:
            reply = self._progress()
            if not reply.get("holder"):
                return
            if reply["arrived"] != newest:
                newest, since = reply["arrived"], time.monotonic()
            if time.monotonic() - since > 1800:
                raise BusyError(
                    f"process {reply['holder'].get('pid', 'unknown')} holds the copy and makes no progress",
                    where=self.plan.destination,
                )
            self.progress("wait", reply["arrived"], self.plan.bytes)
            time.sleep(POLL)

    def _judge(self, reply: dict[str, Any]) -> None:
        plan = self.plan
        where = f"{plan.destination}:{plan.folder}"
        if reply.get("refused") == "space":
            amounts = [
                f"{size(reply[key])} {word}"
                for key, word in (("need", "to copy"), ("free", "free"))
                if key in reply
            ]
            raise CannotCreateError(
                ": ".join([str(reply["what"]), *([", ".join(amounts)] if amounts else [])]),
                where=where,
                hint="disk full: free space there, then run the same command to resume",
            )
        if reply.get("refused"):
            raise CannotCreateError(str(reply["what"]), where=where)
        judged = failure if plan.via == "rsync" else broken
        error = judged(
            int(reply["exit"]), str(reply["said"]), source=plan.source, destination=plan.destination
        )
        error = error or refusal(reply.get("trailer", {}), f"{plan.source}:{plan.source_path}")
        if error is not None:
            raise error

    def _same_source(self) -> None:
        """Look at the source again: what was copied must be what is there, and what was chosen."""
        plan = self.plan
        saved = self.inventory.runs[plan.run].checkpoints
        marker = marker_of(saved.marker if saved else None, plan.step)
        transport = self.connections.transport(plan.source)
        now = look(transport, self.inventory.hosts[plan.source].python, plan.source_path, marker=marker)
        if now.identity == plan.contents.identity and now.complete:
            return
        self._receiver("discard")
        what = (
            "source vanished while it was copied"
            if now.size is None
            else "source changed while it was copied"
        )
        raise DataError(
            what,
            where=f"{plan.source}:{plan.source_path}",
            hint="nothing was staged; run the command again to choose again",
        )

    def _publish(self, came: dict[str, Any], resumed: int, began: float) -> Staged:
        plan, proofs = self.plan, came["proofs"]
        sha256 = proofs[0]["sha256"]
        if len(proofs) > 1:
            lines = sorted(f"{one['name']}\0{one['sha256']}\n" for one in proofs)
            sha256 = hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
        manifest = {
            "schema": "hostkit.staged/1",
            "run": plan.run,
            "step": plan.step,
            "step_inside": plan.contents.step,
            "format": plan.format,
            "entry": plan.entry,
            "method": plan.method,
            "by": plan.by,
            "by_why": plan.by_why,
            "carried": plan.via,
            "route": list(plan.route),
            "sha256": sha256,
            "bytes": plan.bytes,
            "source": {"host": plan.source}
            | plan.contents.model_dump(include={"path", "size", "mtime_ns", "inode"}),
            "files": proofs,
        }
        if plan.selection is not None:
            manifest |= {key: plan.selection[key] for key in ("kept", "dropped", "wanted_bytes")}
            manifest["source_gone"] = bool(came["trailer"].get("replaced"))  # read to its end all the same
        reply = self._receiver("publish", manifest=manifest, keep=plan.keep)
        while (
            reply.get("refused") == "busy"
        ):  # another command with the same plan; what is proven stays as it is
            self._wait()
            reply = self._receiver("publish", manifest=manifest, keep=plan.keep)
        if reply.get("refused"):
            raise DataError(str(reply["what"]), where=f"{plan.destination}:{plan.folder}")
        adopted = bool(came.get("adopted"))  # another command copied it
        return self._result(
            reply["manifest"], began, removed=tuple(reply["removed"]), resumed_at=resumed, reused=adopted
        )

    def _result(self, manifest: dict[str, Any], began: float, **more: Any) -> Staged:
        plan, proofs = self.plan, manifest["files"]
        return Staged(
            path=posixpath.normpath(posixpath.join(plan.folder, plan.name, manifest["entry"])),
            host=plan.destination,
            sha256=manifest["sha256"],
            bytes=manifest["bytes"],
            step=manifest["step"],
            route=tuple(manifest["route"]),
            method=manifest["method"],
            by=manifest.get("by", "pull"),
            seconds=time.monotonic() - began,
            crc_proven=sum(one.get("crc_proven", 0) for one in proofs),
            crc_unrecorded=sum(one.get("crc_unrecorded", 0) for one in proofs),
            manifest=manifest,
            **more,
        )

    def _receiver(
        self, op: str, *, retry: bool = False, listen: bool = False, timeout: float | None = None, **more: Any
    ) -> dict[str, Any]:
        plan = self.plan
        host = self.inventory.hosts[plan.destination]
        request = {"op": op, "folder": plan.folder, "name": plan.name, "state": host.state, **more}
        transport = self.connections.transport(plan.destination)
        return run_program(
            transport, host.python, "receiver", request, timeout=timeout, retry=retry, listen=listen
        )
