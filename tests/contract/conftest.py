"""One set of assertions over every way to a host: the ways."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostkit.transport.base import Transport
from hostkit.transport.connections import Connections

from .servers import SSHD, Fleet, Server, inventory, private_fleet

# way -> (hosts of its inventory, the host asked for). A server's name in place of an address.
WAYS: dict[str, dict[str, dict[str, Any]]] = {
    "local": {"me": {"local": True}},
    "local, pct": {"me": {"local": True}, "ct": {"pct": 200, "via": "me"}},
    "fabric": {"outer": {"server": "outer"}},
    "fabric, pct": {"outer": {"server": "outer"}, "ct": {"pct": 200, "via": "outer"}},
    "fabric, two hops": {"outer": {"server": "outer"}, "inner": {"server": "inner", "via": "outer"}},
    "fabric, two hops, pct": {
        "outer": {"server": "outer"},
        "inner": {"server": "inner", "via": "outer"},
        "ct": {"pct": 200, "via": "inner"},
    },
    "login there": {
        "outer": {"server": "outer"},
        "inner": {"server": "inner", "via": "outer", "login": "there"},
    },
    "login there, pct": {
        "outer": {"server": "outer"},
        "inner": {"server": "inner", "via": "outer", "login": "there"},
        "ct": {"pct": 200, "via": "inner"},
    },
    "local, sudo": {"me": {"local": True, "sudo": "ops"}},
    "sudo at each host": {
        "outer": {"server": "outer", "sudo": "ops"},
        "inner": {"server": "inner", "via": "outer", "login": "there", "sudo": "root"},
        "ct": {"pct": 200, "via": "inner"},
    },
    "noisy": {"noisy": {"server": "noisy"}},
    "noisy, login there, pct": {
        "noisy": {"server": "noisy"},
        "noisy2": {"server": "noisy2", "via": "noisy", "login": "there"},
        "ct": {"pct": 200, "via": "noisy2"},
    },
    "dash": {"dash": {"server": "dash", "shell": "dash"}},
    "fish": {"fish": {"server": "fish", "shell": "fish"}},
    "tcsh": {"tcsh": {"server": "tcsh", "shell": "tcsh"}},
    "tcsh, login there": {
        "tcsh": {"server": "tcsh", "shell": "tcsh"},
        "fish": {"server": "fish", "shell": "fish", "via": "tcsh", "login": "there"},
    },
}
MULTIPLEXED = ("local, pct", "sudo at each host", "noisy, login there, pct", "tcsh, login there")
WAYS |= {f"{way}, multiplexed": WAYS[way] for way in MULTIPLEXED}


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    if not Path(SSHD).exists():
        pytest.skip("no sshd on this machine")
    with private_fleet(tmp_path_factory.mktemp("sshd")) as fleet:
        yield fleet


@pytest.fixture(scope="session")
def connections(fleet: Fleet) -> Iterator[dict[str, Connections]]:
    made: dict[str, Connections] = {}
    yield made
    for each in made.values():
        each.close()


@pytest.fixture(params=list(WAYS))
def transport(
    request: pytest.FixtureRequest,
    fleet: Fleet,
    connections: dict[str, Connections],
    monkeypatch: pytest.MonkeyPatch,
) -> Transport:
    """A transport for each way; the connections of a way are shared by all tests of the session."""
    way = request.param
    hosts: dict[str, dict[str, Any]] = {}
    for name, said in WAYS[way].items():
        keys = dict(said)
        shell = keys.pop("shell", None)
        if shell and not shutil.which(shell):
            pytest.skip(f"no {shell} on this machine")
        if server := keys.pop("server", None):
            noisy = name.startswith("noisy")
            hosts[name] = fleet.host(fleet.server(server, shell=shell, noisy=noisy), **keys)
        else:
            hosts[name] = keys
    stand_in: Server = fleet.server("outer")
    monkeypatch.setenv("PATH", f"{stand_in.bin}:{os.environ['PATH']}")  # `pct` for the local way
    if way not in connections:
        connections[way] = Connections(inventory(**hosts), multiplexed=way.endswith(", multiplexed"))
    return connections[way].transport(list(hosts)[-1])


@pytest.fixture
def own(tmp_path: Path, fleet: Fleet) -> Iterator[Any]:
    """Start servers for one test alone: `own("name", "Option value")`."""
    made: list[Server] = []

    def start(name: str, *options: str, **more: Any) -> Server:
        (tmp_path / "id").exists() or [
            (tmp_path / file).write_bytes((fleet.root / file).read_bytes()) for file in ("id", "id.pub")
        ]
        (tmp_path / "id").chmod(0o600)
        server = Server(tmp_path, name, options, **more).start()
        made.append(server)
        (tmp_path / "known_hosts").write_text("".join(s.known_hosts_line() for s in made))
        return server

    yield start
    for server in made:
        server.stop()
