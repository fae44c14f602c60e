"""Connections give each host its transport, local or not, without contacting anybody."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hostkit.errors import RemoteTimeoutError, UsageError
from hostkit.inventory.models import Inventory
from hostkit.transport.base import Completed
from hostkit.transport.connections import Connections
from hostkit.transport.fake import FakeTransport

HOSTS: dict[str, dict[str, Any]] = {
    "workspace": {"local": True},
    "ct129": {"address": "192.0.2.1"},
    "pve": {"address": "192.0.2.2", "via": "ct129"},
    "ct200": {"pct": 200, "via": "pve"},
    "ct201": {"pct": 201, "via": "pve"},
}


def connections(**more: Any) -> Connections:
    return Connections(Inventory.model_validate({"hostkit": 1, "archive": "/a", "hosts": HOSTS}), **more)


def test_hops_are_shared_by_all_hosts_behind_them() -> None:
    with connections() as made:
        lines = {name: made.ssh_line(made.route(name).connected()) for name in ("pve", "ct200", "ct201")}
        assert lines["pve"] is lines["ct200"] is lines["ct201"]
        assert lines["pve"].hops_before == ("ct129",)


def test_this_machine_needs_no_ssh_and_no_fabric() -> None:
    program = (
        "import sys\n"
        "from hostkit.inventory.models import Inventory\n"
        "from hostkit.transport.connections import Connections\n"
        "hosts = {'me': {'local': True}}\n"
        "with Connections(Inventory.model_validate({'hostkit': 1, 'archive': '/a', 'hosts': hosts})) as c:\n"
        "    assert c.transport('me').run(['true']).ok\n"
        "assert not {'paramiko', 'fabric', 'invoke', 'asyncio', 'unittest.mock'} & set(sys.modules)\n"
    )
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", program], check=True, cwd=root)


def test_standing_on_a_host_makes_it_local() -> None:
    with connections(here="ct200") as made:
        assert made.transport("ct200").run(["echo", "x"]).stdout == b"x\n"
        assert made.transport("workspace").run(["true"]).ok, "this machine stays this machine"


def test_a_host_that_is_not_there_is_a_usage_error() -> None:
    with connections() as made, pytest.raises(UsageError):
        made.transport("nowhere")


def test_the_time_of_the_whole_command_is_shared_by_its_parts() -> None:
    with connections(timeout=1.0) as made:
        here = made.transport("workspace")
        began = time.monotonic()
        with pytest.raises(RemoteTimeoutError):
            here.run(["sleep", "600"], timeout=100)
        with pytest.raises(RemoteTimeoutError, match="used up"):
            here.run(["true"])
        assert time.monotonic() - began < 60


def test_a_fake_answers_from_a_function() -> None:
    with FakeTransport("a", lambda argv, stdin: Completed(tuple(argv), 3, stdin, b"")) as fake:
        assert fake.run(["x"], stdin=b"y") == Completed(("x",), 3, b"y", b"")
    assert fake.closed
    assert fake.asked == [["x"]]
