"""Read checkpoints on the host where they are written: whole or not, and what they hold. Writes nothing.

Travels to hosts: standard library only, Python 3.8 or newer. By hand: checkpoint_cli.py.

request: {"op": "look"|"check"|"inspect", "path": "/…", "marker": null, "weights": ["drafter"] | null}
reply:   what `completeness.examine` says, and `code`: null, or why not in one word; for `inspect` also
         files, top, tensors, metadata, globals, tools. {"op": "list", "path": root, "pattern"} lists a run's,
         {"op": "summaries", "paths"} says of each the step inside and the size of each top-level key.
         A foreign layout: "step" (where the step stands, as trainer.global_step), "strip" (prefixes in names), and
         for summaries "names" (whose bytes are told)
"""

from __future__ import annotations

import functools
import time
from typing import Any, Callable, Iterable

from checkpoint import completeness, folders, inspection, torch_zip
from checkpoint.completeness import IncompleteError
from checkpoint.formats import GARBLED
from checkpoint.inspection import Named
from checkpoint.pickle_reader import PickleError
from checkpoint.torch_zip import Archive
from host import tools

DEEP = 8  # candidates of the highest steps, among which the newest whole one is looked for


def check(path: str, marker: str | None = None) -> dict[str, Any]:
    """Return what `examine` says, after looking at every record's header and every storage's size too."""
    seen: dict[str, Any] = dict(completeness.examine(path, marker), code=None)
    if not seen["complete"]:
        return dict(seen, code="incomplete")
    return _guarded(seen, lambda: _deep(path, seen["format"]))


def candidates(root: str, pattern: str, marker: str | None = None) -> list[dict[str, Any]]:
    """Return what `completeness.candidates` does; the highest steps looked at as `check` does."""
    found: list[dict[str, Any]] = completeness.candidates(root, pattern, marker)
    for one in found[-DEEP:]:
        if one["complete"]:
            said = _guarded({}, functools.partial(_deep, one["path"], one["format"]))
            if not said.get(
                "complete", True
            ):  # whole, but of a layout that nothing is taken out of, is whole
                one.update(complete=False, reason=said["reason"])
    return found


def _deep(path: str, form: str) -> dict[str, Any]:
    if form == "torch-zip":
        with Archive(path) as archive:
            archive.tile()
            torch_zip.tree(archive)
    elif form == "dcp":
        folders.distributed(path)
    elif form == "torch-legacy":
        torch_zip.legacy(path)
        return {"reason": None}  # its storages fill it exactly: that is the proof
    return {}


def _guarded(seen: dict[str, Any], look: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Add what a look finds; or say in one word and one sentence why it found nothing."""
    try:
        return dict(seen, code=None, **look())
    except IncompleteError as why:
        return dict(seen, complete=False, reason=str(why), code="incomplete")
    except PickleError as why:
        return dict(seen, reason=str(why), code="layout")
    except GARBLED as why:
        told = (type(why).__name__, str(why)[:200])
        return dict(seen, reason="it makes no sense, or is nested too deep (%s: %s)" % told, code="layout")
    except OSError as error:
        gone = isinstance(error, FileNotFoundError)
        return dict(
            seen,
            complete=False,
            reason="vanished" if gone else "not readable: %s" % error.strerror,
            code="vanished" if gone else "unreadable",
        )


def inspect(
    path: str,
    marker: str | None = None,
    weights: Iterable[str] | None = None,
    named: Named | None = None,
) -> dict[str, Any]:
    """Return `check`, and what the checkpoint holds. `weights`: tell the tensors of these top-level keys only."""
    seen = check(path, marker)
    seen["files"] = inspection.files(path)
    seen["tools"] = tools.tools()
    if seen["code"] is not None:
        return seen
    wanted = None if weights is None else set(weights)
    named = named or Named({})
    return _guarded(seen, lambda: inspection.contents(path, str(seen["format"]), wanted, named))


def summary(path: str, named: Named) -> dict[str, Any]:
    """Return the step inside, the bytes of what is named, and the size of each top-level key, without the tensors."""
    seen = inspect(path, None, [], named)
    told = {key: seen.get(key) for key in ("path", "code", "format", "reason", "step", "named")}
    return dict(told, top=seen.get("top", []))


def summaries(paths: list[str], named: Named, seconds: float | None) -> list[dict[str, Any]]:
    """Return the summaries of the checkpoints, in their order; those that `seconds` do not suffice for are left out."""
    until = None if seconds is None else time.monotonic() + seconds
    out: list[dict[str, Any]] = []
    for path in paths:
        if out and until is not None and time.monotonic() > until:
            break
        out.append(summary(path, named))
    return out


def serve(request: dict[str, Any]) -> dict[str, Any]:
    """Answer one request."""
    path, marker = request.get("path", ""), request.get("marker")
    if request["op"] == "list":
        return {"candidates": candidates(path, request["pattern"], marker)}
    if request["op"] == "summaries":
        return {"summaries": summaries(request["paths"], Named(request), request.get("seconds"))}
    if request["op"] == "look":
        return dict(completeness.examine(path, marker))
    if request["op"] == "check":
        return check(path, marker)
    return inspect(path, marker, request.get("weights"), Named(request))
