"""Reaching a host of a test's own inventory, with budgets that are short or are never used up; and waiting."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from hostkit.transport.base import Transport
from hostkit.transport.connections import Connections

from .servers import Fleet, Server, inventory

QUICK = {"timeouts": {"connect": "2s", "auth": "3s", "idle": "3s"}}
# of whatever is not meant to give up: a test that took less than SOON has not waited for any of these
PATIENT = {"timeouts": {"connect": "150s", "auth": "150s", "idle": "150s"}}
SOON = 60


@contextlib.contextmanager
def reach(name: str, *, multiplexed: bool = False, **hosts: dict[str, object]) -> Iterator[Transport]:
    with Connections(inventory(**hosts), multiplexed=multiplexed) as connections:
        yield connections.transport(name)


def client(fleet: Fleet, server: Server, **more: object) -> dict[str, object]:
    return fleet.host(server, known_hosts=str(server.root / "known_hosts"), **more)


def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.01)
