"""What a server, a `pct` or an ssh config allows and lacks: few channels, none, no shell, a jump of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from hostkit.errors import (
    ProtocolError,
    UnreachableError,
)
from hostkit.transport.connections import Connections

from .reaching import QUICK, client, reach, until
from .servers import USER, Fleet, inventory

# servers with few channels


@pytest.mark.report("e5")
@pytest.mark.parametrize("most", [1, 2])
def test_few_channels_are_used_one_after_the_other(fleet: Fleet, own: Any, most: int) -> None:
    outer, inner = own("outer", f"MaxSessions {most}"), own("inner", f"MaxSessions {most}")
    hosts = {"outer": client(fleet, outer), "pve": client(fleet, inner, via="outer")}
    answers: list[bytes] = []
    faults: list[BaseException] = []
    with Connections(inventory(**hosts)) as connections:

        def ask(number: int) -> None:
            try:
                transport = connections.transport("pve" if number % 2 else "outer")
                answers.append(transport.run(["sh", "-c", f"sleep 0.2; echo {number}"]).stdout)
            except BaseException as error:
                faults.append(error)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert not faults
    assert sorted(answers) == [b"%d\n" % number for number in range(8)]


@pytest.mark.report("e5")
def test_a_long_command_on_the_only_channel_keeps_nobody_waiting(
    fleet: Fleet, own: Any, tmp_path: Path
) -> None:
    server = own("one", "MaxSessions 1")
    begun, done = tmp_path / "begun", []
    with Connections(inventory(a=client(fleet, server))) as connections:
        script = f"touch {begun}; while ! [ -e {tmp_path}/enough ]; do sleep 0.1; done"
        long = threading.Thread(
            target=lambda: done.append(connections.transport("a").run(["sh", "-c", script]))
        )
        long.start()
        until(begun.exists, "the only channel to be in use")
        assert connections.transport("a").run(["echo", "second"]).stdout == b"second\n"
        assert not done
        (tmp_path / "enough").touch()
        long.join(60)
    assert [each.exit for each in done] == [0]


@pytest.mark.report("e5")
def test_a_server_that_allows_no_channel_says_channel_refused(fleet: Fleet, own: Any) -> None:
    server = own("none", "MaxSessions 0")
    host = client(fleet, server, **QUICK)
    with reach("a", a=host) as transport, pytest.raises(UnreachableError, match="channel refused"):
        transport.run(["true"])


def test_many_threads_share_one_connection(fleet: Fleet, own: Any) -> None:
    server = own("shared")
    answers: list[bool] = []
    with Connections(inventory(a=client(fleet, server))) as connections:
        threads = [
            threading.Thread(target=lambda: answers.append(connections.transport("a").run(["true"]).ok))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert answers == [True] * 8
    assert (server.folder / "log").read_text().count("Accepted publickey") == 1


# wrappers that lie or refuse


@pytest.mark.report("f1", "f7", "f13")
@pytest.mark.parametrize(
    ("stub", "error", "said"),
    [
        ("echo 'lxc-attach: failed to exec' >&2; exit 0", ProtocolError, "failed to exec"),
        ("exit 0", ProtocolError, "did not start"),
        ("echo RUNNING; exit 0", ProtocolError, "did not start"),
        (
            'shift 3; setsid "$@" & while [ ! -e $HOME/begun ]; do sleep 0.02; done; kill -9 -$!',
            ProtocolError,
            "incomplete",
        ),
        (
            "echo \"Configuration file 'nodes/pve1/lxc/200.conf' does not exist\" >&2; exit 255",
            UnreachableError,
            "CT 200 is not on pve",
        ),
        (
            "echo \"Configuration file 'nodes/pve1/lxc/200.conf' does not exist\" >&2; exit 2",
            UnreachableError,
            "moved",
        ),
        (
            "echo \"container '200' not running!\" >&2; exit 255",
            UnreachableError,
            "CT 200 is not running on pve",
        ),
        ("echo 'CT is locked (backup)' >&2; exit 255", UnreachableError, "locked on pve (backup)"),
        ("echo 'CT is locked (migrate)' >&2; exit 0", UnreachableError, "locked on pve (migrate)"),
    ],
)
def test_a_pct_that_fails_is_never_an_answer(
    fleet: Fleet, own: Any, stub: str, error: Any, said: str
) -> None:
    server = own("pve")
    (server.bin / "pct").write_text(f"#!/bin/sh\n{stub}\n")
    with reach("ct200", pve=client(fleet, server), ct200={"pct": 200, "via": "pve"}) as transport:
        with pytest.raises(error) as caught:
            transport.run(["sh", "-c", f"touch {server.home}/begun; sleep 60; echo x"])
        assert said in str(caught.value)
        if isinstance(caught.value, UnreachableError):
            assert caught.value.hop == "ct200"
            assert caught.value.hops_reached == ("pve",)


def test_a_host_without_pct_is_told(fleet: Fleet, own: Any) -> None:
    server = own("pve")
    (server.bin / "pct").unlink()
    with (
        reach("ct200", pve=client(fleet, server), ct200={"pct": 200, "via": "pve"}) as transport,
        pytest.raises(UnreachableError, match="no `pct`"),
    ):
        transport.run(["true"])


@pytest.mark.report("f3", "f9")
def test_inside_a_container_nothing_of_the_callers_environment_is_left(fleet: Fleet) -> None:
    with reach("ct200", pve=fleet.host("outer"), ct200={"pct": 200, "via": "pve"}) as transport:
        names = {line.split("=")[0] for line in transport.run(["env"]).text().splitlines()}
    assert {"PATH", "HOME", "LC_ALL"} <= names
    assert not {"SSH_CONNECTION", "SSH_CLIENT", "MAIL"} & names


# this end


@pytest.mark.report("h9")
def test_a_really_closed_standard_input_is_no_obstacle(fleet: Fleet, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import json, sys\n"
        "from hostkit.inventory.models import Inventory\n"
        "from hostkit.transport.connections import Connections\n"
        "hosts = json.loads(sys.argv[1])\n"
        "with Connections(Inventory.model_validate({'hostkit': 1, 'archive': '/a', 'hosts': hosts})) as c:\n"
        "    for name in hosts:\n"
        "        done = c.transport(name).run(['cat'], stdin=b'given')\n"
        "        assert done.stdout == b'given', done\n"
        "print('well')\n"
    )
    hosts = inventory(
        me={"local": True},
        outer=fleet.host("outer"),
        inner=fleet.host("inner", via="outer"),
        there=fleet.host("inner", via="outer", login="there"),
    ).model_dump_json(include={"hosts"}, exclude_defaults=True)
    hosts = hosts.removeprefix('{"hosts":').removesuffix("}")
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" "$@" <&-', sys.executable, str(program), hosts],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert (done.stdout, done.stderr, done.returncode) == ("well\n", "", 0)


# the user's own ssh configuration


@pytest.mark.report("e11")
@pytest.mark.parametrize("how", ["ProxyJump jump", "ProxyCommand ssh -F {config} -W %h:%p jump"])
def test_an_alias_with_a_jump_of_its_own_is_reached_through_it(
    fleet: Fleet, tmp_path: Path, how: str
) -> None:
    outer, inner = fleet.server("outer"), fleet.server("inner")
    config, included = tmp_path / "config", tmp_path / "included"
    config.write_text(f"Include {included}\n")
    common = (
        f"  User {USER}\n  IdentityFile {fleet.root}/id\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {fleet.known_hosts}\n  GlobalKnownHostsFile /dev/null\n"
    )
    included.write_text(
        f"Host jump\n  HostName 127.0.0.1\n  Port {outer.port}\n{common}"
        f"Host my-box\n  HostName 127.0.0.1\n  Port {inner.port}\n  {how.format(config=config)}\n{common}"
    )
    before = (outer.folder / "log").read_text().count("Accepted publickey")
    with reach("box", box={"alias": "my-box", "ssh_config": str(config)}) as transport:
        assert transport.run(["cat"], stdin=b"x" * 200_000).stdout == b"x" * 200_000
        assert transport.run(["echo", "two words"]).stdout == b"two words\n"
    assert (outer.folder / "log").read_text().count("Accepted publickey") == before + 1


@pytest.mark.report("e11")
def test_an_alias_that_is_nowhere_says_so(fleet: Fleet, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("")
    host: dict[str, object] = {"alias": "no-such-alias.invalid", "ssh_config": str(config)}
    with reach("a", a=host) as transport, pytest.raises(UnreachableError) as caught:
        transport.run(["true"])
    assert "no Host block" in str(caught.value)
    assert str(config) in str(caught.value)
