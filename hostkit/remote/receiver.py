"""The destination's side of staging: room, one copy at a time, proof, the final name, what is kept.

Travels to hosts: standard library only, Python 3.8 or newer. The slots are those of transfer.staging_dir.

ops: prepare (looks only), receive (rsync, then proof), pull (a stream), publish (final name), prove (a staged
one, again), progress, discard. A reply with `refused` says in one word why not, and `what` in a sentence. What a
carrier brings comes in by `receive_stdin` instead, which reads it from standard input.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import time
from typing import Any, Callable

from checkpoint import verify
from host import priority, tools
from transfer import receive, retention
from transfer.staging_dir import MANIFEST, Claim, RefusedError, StagingSlot, room


def prepare(slot: StagingSlot, request: dict[str, Any]) -> dict[str, Any]:
    """Look at everything that a plan needs to know. Writes nothing."""
    prunable = []
    if request.get("keep") is not None:
        of = (slot.folder, slot.name, request["run"], request["keep"], request.get("state"))
        prunable = retention.prunable(*of)
    return {
        "prunable": prunable,
        "tools": tools.tools(),
        "room": room(slot.folder),
        "arrived": slot.arrived(),
        "holder": slot.holder(),
        "staged": slot.manifest(),
        "path": slot.final,
    }


def copied(copy: Callable[..., dict[str, Any]], slot: StagingSlot, request: dict[str, Any]) -> dict[str, Any]:
    """Copy and prove, as the only one. Nothing is at the final name yet."""
    priority.take()
    with Claim(slot) as claim:
        return receive.copied(slot, request, claim, lambda: copy(slot, request, claim))


def receive_stdin(request: dict[str, Any]) -> None:
    """Take what a carrier brings, answer it, and end."""
    priority.take()
    receive.receive_stdin(request)
    os._exit(0)  # without waiting for who listens


def publish(slot: StagingSlot, request: dict[str, Any]) -> dict[str, Any]:
    """Give it its final name, with its manifest, if it is still what was proven; then remove older ones.

    `keep`: how many staged checkpoints of the run stay; None: all.
    """
    manifest = request["manifest"]
    with Claim(slot):
        changed = receive.changed(slot.partial, manifest["files"])
        if changed is not None:
            published = slot.manifest()  # by another command, which had the same copy
            if published is not None and receive.changed(slot.final, manifest["files"]) is None:
                return {"path": slot.final, "removed": [], "manifest": published}
            raise RefusedError("damaged", "%s after it was proven" % changed)
        manifest["staged_at"] = time.time()
        path = os.path.join(slot.partial, MANIFEST)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(manifest, file, indent=1)
        verify.flush(path)
        verify.flush(slot.partial)
        if os.path.lexists(slot.final):
            _put_aside(slot, request.get("state"))
        os.rename(slot.partial, slot.final)
        verify.flush(slot.folder)
        removed: list[str] = []
        if request["keep"] is not None:
            run, keep = str(manifest["run"]), request["keep"]
            removed = retention.prune(slot.folder, slot.name, run, keep, request.get("state"))
    return {"path": slot.final, "removed": removed, "manifest": manifest}


def _put_aside(slot: StagingSlot, state: str | None) -> None:
    """Free the final name: what is unproven goes unless somebody reads it; a link or a file is not ours to remove."""
    aside = "%s.old-%d" % (slot.partial, time.time_ns())
    os.rename(slot.final, aside)
    if not os.path.islink(aside) and not retention.users(slot.final, aside, state):
        shutil.rmtree(aside, ignore_errors=True)  # which does nothing to a file


def prove(slot: StagingSlot) -> dict[str, Any]:
    """Read a staged checkpoint again and hold it against its manifest."""
    manifest = slot.manifest()
    if manifest is None:
        return {"proven": False, "reason": "no manifest"}
    priority.take()
    reason = _disproof(slot, manifest)
    if reason is not None:
        return {"proven": False, "reason": reason, "staged_at": manifest.get("staged_at")}
    return {"proven": True, "reason": None, "manifest": manifest}


def _disproof(slot: StagingSlot, manifest: dict[str, Any]) -> str | None:
    for one in manifest.get("files", []):
        path = os.path.join(slot.final, one["name"])
        try:
            if not stat.S_ISREG(os.lstat(path).st_mode):
                return "%s is not a regular file" % one["name"]
            found = verify.prove(path, False)
        except OSError as error:
            return "%s: %s" % (one["name"], error.strerror)
        if found["sha256"] != one["sha256"]:
            return "%s no longer has its SHA-256" % one["name"]
    return None


def discard(slot: StagingSlot) -> dict[str, Any]:
    """Throw a partial copy away."""
    with Claim(slot):
        shutil.rmtree(slot.partial, ignore_errors=True)
    return {"discarded": True}


def serve(request: dict[str, Any]) -> dict[str, Any]:
    """Answer one request."""
    try:
        slot = StagingSlot(request["folder"], request["name"])
        op = request["op"]
        if op == "prepare":
            return prepare(slot, request)
        if op == "progress":
            return {"arrived": slot.arrived(), "holder": slot.holder()}
        if op == "receive":
            return copied(receive.receive, slot, request)
        if op == "pull":
            return copied(receive.pull, slot, request)
        if op == "publish":
            return publish(slot, request)
        if op == "prove":
            return prove(slot)
        return discard(slot)
    except RefusedError as why:
        return dict(why.more, refused=why.code, what=str(why))
    except OSError as error:
        return receive.refusal(error, request)
