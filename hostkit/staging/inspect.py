"""Ask a host what one of its checkpoints is and holds."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from hostkit.checkpoints.fitting import NESTED
from hostkit.checkpoints.models import Contents, Layout
from hostkit.errors import ProtocolError
from hostkit.transport.base import Transport
from hostkit.transport.programs.run import run_program

LIST_BUDGET = 20.0  # seconds for what several checkpoints hold
BUDGET = 120.0  # seconds; 242 records take a few hundredths, 71 thousand about ten


def inspect_checkpoint(
    transport: Transport,
    python: str,
    path: str,
    *,
    marker: str | None = None,
    weights: list[str] | None = None,
    layout: Layout | None = None,
    timeout: float | None = BUDGET,
) -> Contents:
    """Return what the checkpoint at `path` is and holds; its pickle is read as symbols, nothing is imported.

    A checkpoint that is not whole or not understood is returned too, with its `code` and `reason`. `weights`:
    tell the tensors of these top-level keys only. `layout`: says where the step stands.
    """
    request: dict[str, Any] = {"op": "inspect", "path": path, "marker": marker, "weights": weights}
    request |= (layout or Layout()).request()
    return _contents(
        run_program(transport, python, "checkpoint_reader", request, timeout=timeout, retry=True),
        transport.host,
    )


def look(transport: Transport, python: str, path: str, *, marker: str | None = None) -> Contents:
    """Return size, mtime, inode and completeness alone: a second look, which reads next to nothing."""
    request: dict[str, Any] = {"op": "look", "path": path, "marker": marker}
    return _contents(
        run_program(transport, python, "checkpoint_reader", request, timeout=BUDGET, retry=True),
        transport.host,
    )


def list_checkpoints(
    transport: Transport, python: str, root: str, pattern: str, *, marker: str | None = None
) -> list[dict[str, Any]]:
    """Return what `completeness.candidates` says of a run's folder, ascending by step."""
    request: dict[str, Any] = {"op": "list", "path": root, "pattern": pattern, "marker": marker}
    reply = run_program(transport, python, "checkpoint_reader", request, timeout=BUDGET, retry=True)
    found = reply.get("candidates")
    if not isinstance(found, list):
        raise ProtocolError("the list of checkpoints is not a list", where=transport.host)
    return found


def summaries(
    transport: Transport, python: str, paths: list[str], layout: Layout
) -> tuple[dict[str, tuple[int | None, int | None]], dict[str, str]]:
    """Return the step inside and the bytes of the weights of several checkpoints, in one round trip.

    And why of those that this closer look finds torn, though they end as they should. Those that are not reached in
    time are left out: the first of the paths come first.
    """
    weights = list(layout.weights)
    request: dict[str, Any] = {"op": "summaries", "paths": paths, "names": weights, **layout.request()}
    request["seconds"] = LIST_BUDGET
    reply = run_program(transport, python, "checkpoint_reader", request, timeout=BUDGET, retry=True)
    found: dict[str, tuple[int | None, int | None]] = {}
    torn: dict[str, str] = {}
    for one in reply.get("summaries", []):
        if one.get("code") == "incomplete" and one.get("format"):  # else it may be its marker that tells
            torn[one["path"]] = str(one.get("reason"))
        sizes = {str(entry["key"]): int(entry["bytes"]) for entry in one["top"]}
        if weights:
            known = [size for size in (one.get("named") or {}).values() if size]
        else:
            known = [sizes[key] for key in (*NESTED, "") if key in sizes][:1]
        found[one["path"]] = (one["step"], sum(known) or None)
    return found, torn


def _contents(reply: dict[str, Any], host: str) -> Contents:
    try:
        return Contents.model_validate(reply)
    except ValidationError as error:
        raise ProtocolError(f"unexpected reply about a checkpoint: {error}", where=host) from error
