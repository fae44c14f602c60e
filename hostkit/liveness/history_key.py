"""Which history is a run's: a digest of what the inventory says of it and of the way to it (pure)."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from hostkit.inventory.models import Inventory

# The keys that version 0.1 knew: its files are named by a digest of exactly these.
_HOST_0_1: Any = {
    "address",
    "alias",
    "pct",
    "local",
    "via",
    "login",
    "user",
    "port",
    "identity",
    "ssh_config",
    "known_hosts",
    "python",
    "state",
    "machine",
    "sudo",
    "timeouts",
}
_RUN_0_1: Any = {
    "host": True,
    "process": {"script", "module", "pidfile", "args", "cwd", "workers"},
    "log": {"path", "format", "step", "loss", "time", "finished"},
    "checkpoints": {"root", "pattern", "every", "keep", "keep_every", "weights", "step", "strip", "marker"},
}


def digest(inventory: Inventory, run: str) -> str:
    """Return 12 hex digits of what is declared; a key that a newer version adds changes none that exist."""
    declared = inventory.runs[run].model_dump(
        mode="json", include={"host", "process", "log", "checkpoints"}, exclude_defaults=True
    )
    hosts = [
        inventory.hosts[host].model_dump(mode="json", exclude_defaults=True)
        for host in _route(inventory, run)
    ]
    return _short([hosts, declared])


def digest_of_0_1(inventory: Inventory, run: str) -> str:
    hosts = [
        inventory.hosts[host].model_dump(mode="json", include=_HOST_0_1) for host in _route(inventory, run)
    ]
    return _short([hosts, inventory.runs[run].model_dump(mode="json", include=_RUN_0_1)])


def _route(inventory: Inventory, run: str) -> list[str]:
    """Return the hosts on the way to a run, its own first."""
    route: list[str] = []
    host = inventory.runs[run].host
    while host in inventory.hosts and host not in route:
        route.append(host)
        host = inventory.hosts[host].via or ""
    return route


def _short(declared: list[Any]) -> str:
    return hashlib.sha256(json.dumps(declared, sort_keys=True).encode()).hexdigest()[:12]
