"""What wrappers say before the command starts is put in words that name the hop; words alone prove nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hostkit import errors
from hostkit.inventory.models import Inventory
from hostkit.transport.diagnose import explain, explain_cut, explain_login_shell
from hostkit.transport.route import Route

HOSTS: dict[str, dict[str, Any]] = {
    "ct129": {"address": "10.1.230.172"},
    "pve": {"address": "10.1.2.6", "via": "ct129", "login": "there"},
    "ct200": {"pct": 200, "via": "pve"},
    "sudo": {"address": "10.1.2.7", "sudo": "root"},
}
CASES = sorted((Path(__file__).parent / "diagnose").glob("*.json"))


def route(name: str) -> Route:
    return Route.to(Inventory.model_validate({"hostkit": 1, "archive": "/a", "hosts": HOSTS}), name)


def diagnose(name: str, stdout: bytes, stderr: bytes) -> None:
    explain(route(name), stdout, stderr)
    *before, last = route(name).connected()
    explain_login_shell(last, tuple(hop.name for hop in before), stdout, stderr)


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_a_complaint_is_understood(case: Path) -> None:
    said = json.loads(case.read_text())
    stdout, stderr = said.get("stdout", "").encode(), said["stderr"].encode()
    if said["error"] is None:
        diagnose(said["host"], stdout, stderr)
        return
    with pytest.raises(errors.UnreachableError) as caught:
        diagnose(said["host"], stdout, stderr)
    assert type(caught.value).__name__ == said["error"]
    assert caught.value.hop == said["hop"]
    assert list(caught.value.hops_reached) == said["hops_reached"]
    assert said["says"] in str(caught.value)
    for forbidden in ("unlock", "StrictHostKeyChecking", "/dev/null", "ssh-keygen -R"):
        assert forbidden not in str(caught.value).replace("never unlocks", "")


def test_there_are_cases() -> None:
    assert len(CASES) >= 15


@pytest.mark.parametrize(
    "said",
    [
        "Timeout, server 10.1.2.6 not responding.",
        "Connection to 10.1.2.6 closed by remote host.",
        "client_loop: send disconnect: Broken pipe",
    ],
)
def test_a_nested_ssh_that_lost_its_connection_names_its_hop(said: str) -> None:
    with pytest.raises(errors.LostError) as caught:
        explain_cut(route("ct200"), f"some words\n{said}\n".encode())
    assert caught.value.hop == "pve"
    explain_cut(route("ct129"), said.encode())  # no nested ssh there: the command itself said it
