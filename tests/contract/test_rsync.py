"""The rsync words of a route reach exactly the named files, through every kind of hop."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hostkit.transport.route import Route

from .servers import Fleet, has_ipv6, inventory

pytestmark = pytest.mark.skipif(not shutil.which("rsync"), reason="no rsync on this machine")

AWKWARD = [
    "plain",
    "my run (v2) $HOME `touch canary` 'q' ü",
    "new\nline",
    " lead",
    "a:b",
    "*",
    os.fsdecode(b"\xff"),
]


def pull(route: Route, folder: Path, into: Path, names: list[str]) -> subprocess.CompletedProcess[bytes]:
    source = route.rsync_source()
    argv = [
        "rsync",
        "-t",
        "--files-from=-",
        "--from0",
        *source.options(),
        source.spec(f"{folder}/"),
        f"{into}/",
    ]
    listed = b"".join(os.fsencode(name) + b"\0" for name in names)
    return subprocess.run(argv, input=listed, capture_output=True, timeout=60)


def routes(fleet: Fleet) -> dict[str, tuple[dict[str, dict[str, Any]], str]]:
    outer, inner = fleet.host("outer"), fleet.host("inner", via="outer")
    there = fleet.host("inner", via="outer", login="there")
    return {
        "one hop": ({"outer": outer}, "outer"),
        "a container": ({"outer": outer, "ct": {"pct": 200, "via": "outer"}}, "ct"),
        "two tunnelled hops": ({"outer": outer, "inner": inner}, "inner"),
        "two tunnelled hops, a container": (
            {"outer": outer, "inner": inner, "ct": {"pct": 200, "via": "inner"}},
            "ct",
        ),
        "login there": ({"outer": outer, "inner": there}, "inner"),
        "login there, a container": (
            {"outer": outer, "inner": there, "ct": {"pct": 200, "via": "inner"}},
            "ct",
        ),
        "the same host": ({"here": {"local": True}}, "here"),
        "a container here": ({"here": {"local": True}, "ct": {"pct": 200, "via": "here"}}, "ct"),
        "fish and tcsh": (
            {
                "tcsh": fleet.host(fleet.server("tcsh", shell="tcsh")),
                "fish": fleet.host(fleet.server("fish", shell="fish"), via="tcsh", login="there"),
            },
            "fish",
        ),
    }


@pytest.mark.report("d9")
@pytest.mark.parametrize(
    "way",
    [
        "one hop",
        "a container",
        "two tunnelled hops",
        "two tunnelled hops, a container",
        "login there",
        "login there, a container",
        "the same host",
        "a container here",
        "fish and tcsh",
    ],
)
def test_files_of_any_name_arrive_byte_for_byte(
    way: str, fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way.startswith("fish") and not (shutil.which("fish") and shutil.which("tcsh")):
        pytest.skip("no fish or tcsh on this machine")
    monkeypatch.setenv("PATH", f"{fleet.server('outer').bin}:{os.environ['PATH']}")
    hosts, name = routes(fleet)[way]
    folder, into = tmp_path / "source", tmp_path / "into"
    folder.mkdir()
    into.mkdir()
    for number, each in enumerate(AWKWARD):
        (folder / each).write_bytes(os.urandom(1000 + number))
    done = pull(Route.to(inventory(**hosts), name), folder, into, AWKWARD)
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(into)) == sorted(AWKWARD)
    for each in AWKWARD:
        assert (into / each).read_bytes() == (folder / each).read_bytes()


def test_seen_from_a_vantage_host_its_own_route_is_used(fleet: Fleet, tmp_path: Path) -> None:
    """As staging does it: the destination pulls, here a server that is asked to run rsync itself."""
    from hostkit.transport.connections import Connections

    hosts = {
        "ct129": fleet.host("outer"),
        "pve": fleet.host("inner", via="ct129", login="there"),
        "ct200": {"pct": 200, "via": "pve"},
    }
    fleet_inventory = inventory(**hosts)
    (tmp_path / "file").write_bytes(b"weights")
    (tmp_path / "into").mkdir()
    source = Route.to(fleet_inventory, "ct200", here="ct129").rsync_source()
    with Connections(fleet_inventory) as connections:
        done = connections.transport("ct129").run(
            ["rsync", *source.options(), source.spec(f"{tmp_path}/file"), f"{tmp_path}/into/"], timeout=60
        )
    assert done.ok, done.stderr
    assert (tmp_path / "into" / "file").read_bytes() == b"weights"


@pytest.mark.report("d1")
def test_a_banner_on_stderr_alone_is_no_failure_and_noise_on_stdout_is(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"weights")
    (tmp_path / "into").mkdir()
    polite = fleet.server("polite", 'ForceCommand echo careful >&2; eval "$SSH_ORIGINAL_COMMAND"')
    done = pull(Route.to(inventory(a=fleet.host(polite)), "a"), tmp_path, tmp_path / "into", ["file"])
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "into" / "file").read_bytes() == b"weights"
    noisy = fleet.server("noisy", noisy=True)
    done = pull(Route.to(inventory(a=fleet.host(noisy)), "a"), tmp_path, tmp_path / "into", ["file"])
    assert done.returncode != 0


@pytest.mark.report("d13")
@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on this machine")
def test_an_ipv6_address_with_a_user_and_a_port_is_reached_by_both(fleet: Fleet, tmp_path: Path) -> None:
    from hostkit.transport.connections import Connections

    server = fleet.server("six", "ListenAddress ::1")
    known = tmp_path / "known_hosts"
    known.write_text(server.known_hosts_line(f"[::1]:{server.port}"))
    hosts = inventory(six=fleet.host(server, known_hosts=str(known)) | {"address": "::1"})
    with Connections(hosts) as connections:
        assert connections.transport("six").run(["true"]).ok
    (tmp_path / "file").write_bytes(b"weights")
    (tmp_path / "into").mkdir()
    done = pull(Route.to(hosts, "six"), tmp_path, tmp_path / "into", ["file"])
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "into" / "file").read_bytes() == b"weights"


@pytest.mark.parametrize(("login", "pct"), [("forward", False), ("forward", True), ("there", True)])
def test_openssh_reaches_the_same_host_by_the_argv_that_is_made_for_it(
    fleet: Fleet, login: str, pct: bool
) -> None:
    hosts = {"outer": fleet.host("outer"), "inner": fleet.host("inner", via="outer", login=login)}
    if pct:
        hosts["ct"] = {"pct": 200, "via": "inner"}
    route = Route.to(inventory(**hosts), list(hosts)[-1])
    argv = route.piped_argv(["printf", "[%s]", "two words", "it's"])
    done = subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
    assert done.stdout == b"[two words][it's]", done.stderr
