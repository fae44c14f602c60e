"""A hop or a container that hangs costs one budget, is named with the hops that were reached, and leaves nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostkit.errors import RemoteTimeoutError, UnreachableError
from hostkit.liveness.observe import observe
from hostkit.staging.transfer_route import choose_route
from hostkit.transport.connections import Connections

from .reaching import PATIENT, client, until
from .servers import Fleet, Server, inventory

BUDGET = 8.0
GRACE = 12.0  # seconds, of a busy machine; two suffice on a quiet one
# heeds no signal but KILL, and says who it is
PCT = """#!/bin/sh
trap '' TERM HUP INT
[ "$1" = status ] && {{ echo "status: running"; exit; }}
echo $$ >>{pids}
while :; do sleep 1; done
"""


@pytest.fixture
def pids(tmp_path: Path) -> Path:
    return tmp_path / "pids"


def alive(pids: Path) -> list[int]:
    numbers = [int(line) for line in pids.read_text().split()] if pids.exists() else []
    return [number for number in numbers if Path(f"/proc/{number}").exists()]


@pytest.fixture
def hung(fleet: Fleet, own: Any, pids: Path, tmp_path: Path) -> Iterator[dict[str, dict[str, object]]]:
    """Return ct129, pve and ct200, where `pct exec` hangs."""
    folder = tmp_path / "proxmox" / "bin"
    folder.mkdir(parents=True)
    (folder / "pct").write_text(PCT.format(pids=pids))
    (folder / "pct").chmod(0o755)
    outer, inner = own("outer"), own("proxmox")
    yield {
        "ct129": client(fleet, outer, **PATIENT),
        "pve": client(fleet, inner, via="ct129", login="there", **PATIENT),
        "ct200": {"pct": 200, "via": "pve", "python": sys.executable},
    }
    for pid in alive(pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("multiplexed", [False, True])
@pytest.mark.parametrize("login", ["there", "forward"])
def test_a_pct_that_hangs_is_named_in_time_with_the_hops_before_it_and_is_ended(
    hung: dict[str, dict[str, object]], pids: Path, login: str, multiplexed: bool
) -> None:
    hung["pve"]["login"] = login
    began = time.monotonic()
    with Connections(inventory(**hung), timeout=BUDGET, multiplexed=multiplexed) as connections:
        with pytest.raises(RemoteTimeoutError) as caught:
            connections.transport("ct200").run(["true"], timeout=60)
        assert time.monotonic() - began < BUDGET + GRACE
        assert caught.value.hop == "ct200"
        assert caught.value.hops_reached == ("ct129", "pve")
        assert "pct exec 200" in caught.value.what
        assert alive(pids)
    until(lambda: not alive(pids), "the end of the pct that hangs")


def test_a_run_behind_a_pct_that_hangs_is_unknown_and_proxmox_is_asked_in_the_same_budget(
    hung: dict[str, dict[str, object]], pids: Path
) -> None:
    runs = {"drafter": {"host": "ct200", "process": {"script": "t.py"}, "log": {"path": "/t.log"}}}
    document = inventory(**hung).model_dump(mode="json", exclude_unset=True) | {"runs": runs}
    whole = type(inventory(**hung)).model_validate(document)
    began = time.monotonic()
    with Connections(whole, timeout=BUDGET) as connections:
        status = observe(connections, whole, "drafter")
    assert time.monotonic() - began < BUDGET + GRACE
    assert status.verdict == "UNKNOWN"
    assert [hop.state for hop in status.hops] == ["ok", "ok", "failed"]
    assert "hops reached: ct129, pve" in status.evidence
    assert "pct status 200 on pve: status: running" in status.evidence
    until(lambda: not alive(pids), "the end of the pct that hangs")


def test_a_try_whether_one_host_reaches_the_other_leaves_no_pct_that_hangs(
    hung: dict[str, dict[str, object]], pids: Path
) -> None:
    hosts = inventory(**hung)
    with Connections(hosts, timeout=BUDGET) as connections:
        assert choose_route(connections, hosts, "ct200", "ct129").refused
    assert pids.read_text()
    until(lambda: not alive(pids), "the end of the pct that hangs")


def test_a_python_that_never_answers_is_told_from_a_container_that_was_not_entered(
    fleet: Fleet, tmp_path: Path
) -> None:
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\nexec sleep 600\n")
    python.chmod(0o755)
    hosts = {
        "ct129": fleet.host("outer", **PATIENT),
        "ct200": {"pct": 200, "via": "ct129", "python": str(python)},
    }
    began = time.monotonic()
    with Connections(inventory(**hosts), timeout=BUDGET) as connections:
        with pytest.raises(RemoteTimeoutError) as caught:
            connections.transport("ct200").run([str(python)])
        assert time.monotonic() - began < BUDGET + GRACE
    assert (caught.value.hop, caught.value.hops_reached) == ("ct200", ("ct129",))
    assert "exceeded its limit" in caught.value.what


@pytest.mark.parametrize("shell_hangs_on", ["outer", "inner"])
def test_a_login_shell_that_hangs_is_named(
    fleet: Fleet, own: Any, tmp_path: Path, shell_hangs_on: str
) -> None:
    hangs = ("ForceCommand exec sleep 600",)
    servers: dict[str, Server] = {
        name: own(name, *(hangs if name == shell_hangs_on else ())) for name in ("outer", "inner")
    }
    hosts = {
        "ct129": client(fleet, servers["outer"], **PATIENT),
        "pve": client(fleet, servers["inner"], via="ct129", login="there", **PATIENT),
        "ct200": {"pct": 200, "via": "pve"},
    }
    with (
        Connections(inventory(**hosts), timeout=BUDGET) as connections,
        pytest.raises(UnreachableError) as caught,
    ):
        connections.transport("ct200").run(["true"])
    expected = {"outer": ("ct129", ()), "inner": ("pve", ("ct129",))}[shell_hangs_on]
    assert (caught.value.hop, caught.value.hops_reached) == expected


@pytest.mark.parametrize("timeout", [0.001, 0.0])
def test_a_budget_that_is_over_at_once_calls_no_hop_reached(fleet: Fleet, timeout: float) -> None:
    hosts = {
        "ct129": fleet.host("outer", **PATIENT),
        "pve": fleet.host("inner", via="ct129", **PATIENT),
        "ct200": {"pct": 200, "via": "pve"},
    }
    with (
        Connections(inventory(**hosts), timeout=timeout) as connections,
        pytest.raises(RemoteTimeoutError) as caught,
    ):
        connections.transport("ct200").run(["true"])
    assert caught.value.hops_reached == ()
