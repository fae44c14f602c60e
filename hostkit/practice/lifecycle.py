"""Bring a practice fleet up, and take it down by what was recorded: processes by identity, then its root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import hostkit
from hostkit.errors import HostkitError
from hostkit.identity import Identity
from hostkit.practice import furnish, processes
from hostkit.practice.furnish import Settings
from hostkit.practice.root import MARK, Root, all_roots, create, remove

T = TypeVar("T")

HOSTS = ("ct129", "pve")  # ct200 has no server of its own


@dataclass(frozen=True, slots=True)
class Ended:
    """What `down` did: how many processes it ended, and those that live in spite of it."""

    root: Root
    processes: int
    survivors: list[Identity] = field(default_factory=list)


def begin() -> Root:
    """Make the root of a new fleet, and record whose it is before anything is started in it."""
    root = create()
    record = {
        "schema": "hostkit.practice/1",
        "root": str(root.path),
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "owner": _described(processes.of(os.getpid())),
    }
    root.record.write_text(json.dumps(record, indent=2) + "\n")
    return root


def owner(root: Root) -> Identity | None:
    """Return the command that brought a fleet up, if it still runs."""
    try:
        who = Identity.model_validate(json.loads(root.record.read_text())["owner"])
    except (OSError, ValueError, KeyError):
        return None
    return who if processes.alive(who) else None


def left_over() -> list[Root]:
    """Return the fleets that nobody is busy with: kept ones, and those whose command was killed."""
    return [root for root in all_roots() if owner(root) is None]


def furnish_and_serve(root: Root, settings: Settings) -> None:
    """Give the hosts their keys, servers and files. The fleet can be logged in to when this returns."""
    furnish.keys(root)
    furnish.container(root)
    for host in HOSTS:
        start_server(root, host, wait=False)
    for host in HOSTS:
        wait_for_server(root, host)
    port = int(root.port_file.read_text())
    furnish.ssh_files(root, port)
    furnish.inventory(root, port, settings)


def start_server(root: Root, host: str, *, wait: bool = True) -> None:
    """Start the server of one host, detached; also to bring back one that was taken away."""
    root.ready_file(host).unlink(missing_ok=True)
    root.pid_file(host).unlink(missing_ok=True)
    path = os.pathsep.join(
        [str(Path(hostkit.__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    with (root.path / f"{host}.log").open("ab") as log:
        started = subprocess.run(
            [sys.executable, "-m", "hostkit.practice.servers", str(root.path), host],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=os.environ | {"PYTHONPATH": path, MARK: str(root.path)},
            check=False,
        )
    if started.returncode:
        raise _did_not_start(root, host)
    if wait:
        wait_for_server(root, host)


def wait_for_server(root: Root, host: str, seconds: float = 30.0) -> Identity:
    """Wait until a host's server takes logins. Raises HostkitError with its last words where it ended."""

    def looked() -> bool | None:
        starting, ready = root.pid_file(host), root.ready_file(host)
        if starting.exists() and processes.of(int(starting.read_text())) is None:
            return False
        return True if ready.exists() else None

    who = processes.of(int(root.pid_file(host).read_text())) if until(looked, seconds) else None
    if who is None:
        raise _did_not_start(root, host)
    return who


def stop_server(root: Root, host: str) -> bool:
    """Take one host's server away, as if the host were gone; False if it was away already."""
    who = processes.of(int(root.pid_file(host).read_text()))
    if who is None or who not in [known for _, known in processes.noted(root)]:
        return False
    return not processes.end([who])


def down(root: Root) -> Ended:
    """End every process of a fleet, then remove its root. The root stays while a process of it lives."""
    ended: set[int] = set()
    survivors: list[Identity] = []
    for _ in range(5):  # what is ended may just have started something
        living = {who.pid: who for _, who in processes.noted(root) if processes.alive(who)}
        living |= {who.pid: who for who in processes.marked(root)}
        if not living:
            survivors = []
            break
        ended |= living.keys()
        survivors = processes.end(living.values())
    if not survivors and root.path.exists():  # else another `--down` was quicker
        remove(root)
    return Ended(root, len(ended), survivors)


def until(look: Callable[[], T | None], seconds: float, every: float = 0.05) -> T | None:
    """Return what `look` finds, looked for until `seconds` have passed; None if it finds nothing by then."""
    limit = time.monotonic() + seconds
    while (found := look()) is None and time.monotonic() < limit:
        time.sleep(every)
    return found


def _did_not_start(root: Root, host: str) -> HostkitError:
    log = root.path / f"{host}.log"
    last = (log.read_text(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
    return HostkitError(f"the practice SSH server of {host} did not start: {last}", where=str(log))


def _described(who: Identity | None) -> dict[str, object] | None:
    return None if who is None else who.model_dump()
