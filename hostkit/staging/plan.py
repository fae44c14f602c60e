"""What staging a checkpoint will do: bytes, route, method, room; and every obstacle, before a byte moves."""

from __future__ import annotations

import hashlib
import json
import posixpath
from concurrent.futures import Future

from hostkit.checkpoints.models import Candidate, Contents, Layout
from hostkit.inventory.models import Inventory
from hostkit.staging.inspect import inspect_checkpoint
from hostkit.staging.method import FOLDERS, Chosen, Method, choose_method
from hostkit.staging.models import StagePlan
from hostkit.staging.transfer_commands import SILENCE, low_priority_argv, receive_argv, send_argv
from hostkit.staging.transfer_route import By, TransferRoute, find_route
from hostkit.transport.connections import Connections
from hostkit.transport.programs.run import run_program
from hostkit.transport.route import Route

KEEP = 3  # staged checkpoints of a run that stay
CHECKED_FORMATS = ("torch-zip",)  # formats with a CRC of every byte: a resumed copy of them can be proven


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
    keep: int | None = KEEP,
    by: By = "auto",
    route: Future[TransferRoute] | None = None,
) -> StagePlan:
    """Look at both sides and plan. Writes nothing anywhere. `rate`: bytes a second at most. `by`: who carries.

    `method`: the needed tensors alone (weights), the whole checkpoint by rsync (full), or what saves bytes (auto).
    `route`: from `find_route`, where that began before the checkpoint was known; `by` counts there, then.
    """
    source = inventory.runs[run].host
    saved = inventory.runs[run].checkpoints
    finding = route or find_route(connections, inventory, source, dest_host, by)
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
    transfer = finding.result()
    there = {name: path for name, path in (reply.get("tools") or {}).items() if isinstance(name, str)}
    via, via_why = _via(chosen, transfer, {source: contents.tools, dest_host: there})
    whole = contents.format not in FOLDERS or candidate.path.endswith(".index.json")
    base = posixpath.dirname(candidate.path) if whole else candidate.path
    return StagePlan(
        run=run,
        step=candidate.step,
        source=source,
        source_path=candidate.path,
        destination=dest_host,
        folder=dest_dir,
        keep=keep,
        name=name,
        entry=posixpath.basename(candidate.path) if whole else ".",
        format=contents.format,
        bytes=chosen.selection["size"] if chosen.selection else sum(file.size for file in chosen.files),
        contents=contents,
        method=chosen.method,
        why=chosen.why,
        by=transfer.by,
        by_why=transfer.why,
        via=via,
        via_why=via_why,
        route=transfer.route,
        into=tuple(hop.name for hop in transfer.into.hops) if transfer.into else (),
        argv=tuple(_argv(transfer, inventory, source, contents, there, via, rate)),
        receiver=tuple(receive_argv(transfer.into, inventory, there)) if transfer.into else (),
        base=base,
        # "/./" ends what is left behind of the path; NUL-ended names reach no shell, whatever they hold
        names="".join(f"{base}/./{file.name}\0" for file in chosen.files) if via == "rsync" else "",
        files=chosen.files,
        selection=chosen.selection,
        refused=chosen.refused,
        unreached=transfer.refused,
        rate=rate,
        room=reply.get("room", {}),
        arrived=reply.get("arrived", 0),
        holder=reply.get("holder"),
        staged=reply.get("staged"),
        prunable=tuple(str(path) for path in reply.get("prunable", ())),
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


def _via(chosen: Chosen, route: TransferRoute, tools: dict[str, dict[str, str | None]]) -> tuple[str, str]:
    """Return whether rsync brings it or hostkit's own stream, and why."""
    if chosen.selection is not None:
        return "stream", "a selection is made while it is sent"
    lacking = [host for host, has in tools.items() if not has.get("rsync")]
    if lacking:
        return "stream", f"rsync missing on {' and '.join(lacking)}"
    if route.by == "relay":
        return "stream", "no rsync copies between two other hosts"
    if route.prints:
        return "stream", "a login shell on the route prints, which corrupts the rsync stream"
    return "rsync", "both sides have it"


def _argv(
    route: TransferRoute,
    inventory: Inventory,
    source: str,
    contents: Contents,
    there: dict[str, str | None],
    via: str,
    rate: int | None,
) -> list[str]:
    """Return the words that who carries runs to get at the bytes."""
    if via == "rsync":
        if route.out is None:
            return _pushing(contents, rate)
        return _pulling(route.out, contents, there, rate)
    if route.out is not None:
        return send_argv(route.out, inventory, contents.tools)
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
