"""The destination's side of staging: room, one copy at a time, proof, the final name, what is kept.

Travels to hosts: standard library only, Python 3.8 or newer. The places are receiver_place's.

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
from transfer.staging_dir import MANIFEST, Claim, Place, RefusedError, room


def prepare(place: Place, request: dict[str, Any]) -> dict[str, Any]:
    """Look at everything that a plan needs to know. Writes nothing."""
    going = []
    if request.get("keep") is not None:
        of = (place.folder, place.name, request["run"], request["keep"], request.get("state"))
        going = retention.going(*of)
    return {
        "going": going,
        "tools": tools.tools(),
        "room": room(place.folder),
        "arrived": place.arrived(),
        "holder": place.holder(),
        "staged": place.manifest(),
        "path": place.final,
    }


def copied(copy: Callable[..., dict[str, Any]], place: Place, request: dict[str, Any]) -> dict[str, Any]:
    """Copy and prove, as the only one. Nothing is at the final name yet."""
    priority.take()
    with Claim(place) as claim:
        return receive.copied(place, request, claim, lambda: copy(place, request, claim))


def receive_stdin(request: dict[str, Any]) -> None:
    """Take what a carrier brings, answer it, and end."""
    priority.take()
    receive.receive_stdin(request)
    os._exit(0)  # without waiting for who listens


def publish(place: Place, request: dict[str, Any]) -> dict[str, Any]:
    """Give it its final name, with its manifest, if it is still what was proven; then remove older ones.

    `keep`: how many staged checkpoints of the run stay; None: all.
    """
    manifest = request["manifest"]
    with Claim(place) as claim:
        changed = receive.changed(place.partial, manifest["files"])
        if changed is not None:
            published = place.manifest()  # by another command, which had the same copy
            if published is not None and receive.changed(place.final, manifest["files"]) is None:
                claim.finish()
                return {"path": place.final, "removed": [], "manifest": published}
            raise RefusedError("damaged", "%s after it was proven" % changed)
        manifest["staged_at"] = time.time()
        path = os.path.join(place.partial, MANIFEST)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(manifest, file, indent=1)
        verify.flush(path)
        verify.flush(place.partial)
        if os.path.lexists(place.final):
            _put_aside(place, request.get("state"))
        os.rename(place.partial, place.final)
        verify.flush(place.folder)
        claim.finish()
        removed: list[str] = []
        if request["keep"] is not None:
            run, keep = str(manifest["run"]), request["keep"]
            removed = retention.prune(place.folder, place.name, run, keep, request.get("state"))
    return {"path": place.final, "removed": removed, "manifest": manifest}


def _put_aside(place: Place, state: str | None) -> None:
    """Free the final name: what is unproven goes unless somebody reads it; a link or a file is not ours to remove."""
    aside = "%s.old-%d" % (place.partial, time.time_ns())
    os.rename(place.final, aside)
    if not os.path.islink(aside) and not retention.users(place.final, aside, state):
        shutil.rmtree(aside, ignore_errors=True)  # which does nothing to a file


def prove(place: Place) -> dict[str, Any]:
    """Read a staged checkpoint again and hold it against its manifest."""
    manifest = place.manifest()
    if manifest is None:
        return {"proven": False, "reason": "no manifest"}
    priority.take()
    reason = _disproof(place, manifest)
    if reason is not None:
        return {"proven": False, "reason": reason, "staged_at": manifest.get("staged_at")}
    return {"proven": True, "reason": None, "manifest": manifest}


def _disproof(place: Place, manifest: dict[str, Any]) -> str | None:
    for one in manifest.get("files", []):
        path = os.path.join(place.final, one["name"])
        try:
            if not stat.S_ISREG(os.lstat(path).st_mode):
                return "%s is no regular file" % one["name"]
            found = verify.prove(path, False)
        except OSError as error:
            return "%s: %s" % (one["name"], error.strerror)
        if found["sha256"] != one["sha256"]:
            return "%s no longer has its SHA-256" % one["name"]
    return None


def discard(place: Place) -> dict[str, Any]:
    """Throw a partial copy away."""
    with Claim(place) as claim:
        shutil.rmtree(place.partial, ignore_errors=True)
        claim.finish()
    return {"discarded": True}


def serve(request: dict[str, Any]) -> dict[str, Any]:
    """Answer one request."""
    try:
        place = Place(request["folder"], request["name"])
        op = request["op"]
        if op == "prepare":
            return prepare(place, request)
        if op == "progress":
            return {"arrived": place.arrived(), "holder": place.holder()}
        if op == "receive":
            return copied(receive.receive, place, request)
        if op == "pull":
            return copied(receive.pull, place, request)
        if op == "publish":
            return publish(place, request)
        if op == "prove":
            return prove(place)
        return discard(place)
    except RefusedError as why:
        return dict(why.more, refused=why.code, what=str(why))
    except OSError as error:
        return receive.refusal(error, request)
