"""train-status on the real fleet, where a hop or a container hangs: one budget, the right hop, nothing left behind."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.fleet.fleet import Fleet
from tests.fleet.processes import until

pytestmark = pytest.mark.fleet

DEFAULT_BUDGET = 30.0
GRACE = 12.0  # seconds, of a busy machine; two suffice on a quiet one
# heeds no signal but KILL
PCT = """#!/bin/sh
trap '' TERM HUP INT
[ "$1" = status ] && { echo "status: running"; exit; }
while :; do sleep 1; done
"""


def status(fleet: Fleet, *flags: str) -> tuple[dict[str, Any], float]:
    """Return the document of train-status, and how long the command took."""
    began = time.monotonic()
    done = fleet.hostkit("train-status", "--json", *flags)
    took = time.monotonic() - began
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["verdict"] == "UNKNOWN", document
    return document, took


def states(document: dict[str, Any]) -> dict[str, str]:
    return {hop["name"]: hop["state"] for hop in document["hops"]}


def running(fleet: Fleet, host: str) -> list[list[str]]:
    """Return what hostkit has left on a hop."""
    return [words for words in fleet.processes(host).values() if "hostkit" in " ".join(words)]


def hang_pct(fleet: Fleet) -> None:
    place = fleet.root("pve") / "usr/sbin/pct"
    place.unlink()
    place.write_text(PCT)
    place.chmod(0o755)


def test_a_pct_that_heeds_nothing_is_named_within_the_default_budget_and_does_not_stay(fleet: Fleet) -> None:
    hang_pct(fleet)
    document, took = status(fleet)
    assert took < DEFAULT_BUDGET + GRACE
    assert states(document) == {"ct129": "ok", "pve": "ok", "ct200": "failed"}
    assert "pct status 200 on pve: status: running" in document["evidence"]
    for host in ("ct129", "pve"):
        until(lambda host=host: not running(fleet, host), f"the end of what hostkit started on {host}")


@pytest.mark.parametrize("host", ["ct129", "pve", "ct200"])
def test_a_host_that_is_frozen_is_named_within_the_time_that_was_given(fleet: Fleet, host: str) -> None:
    fleet.freeze(host)
    document, took = status(fleet, "--timeout", "8s")
    fleet.thaw(host)
    assert took < 8 + GRACE
    hops = ["ct129", "pve", "ct200"]
    failed = hops.index(host)
    assert [states(document)[hop] for hop in hops] == ["ok"] * failed + ["failed"] + ["not tried"] * (
        2 - failed
    )


def test_a_python_that_never_answers_is_told_from_a_hop_that_was_not_reached(fleet: Fleet) -> None:
    python = fleet.root("ct200") / "workspace/python3"
    python.write_text("#!/bin/sh\nexec sleep 600\n")
    python.chmod(0o755)
    inventory = fleet.inventory_with(lambda data: data["hosts"]["ct200"].update(python="/workspace/python3"))
    document, took = status(fleet, "--timeout", "8s", "--inventory", str(inventory))
    assert took < 8 + GRACE
    assert states(document) == {"ct129": "ok", "pve": "ok", "ct200": "failed"}
    assert "pct exec" not in document["evidence"][0]
    for host in ("ct129", "pve", "ct200"):
        until(lambda host=host: not running(fleet, host), f"the end of what hostkit started on {host}")
