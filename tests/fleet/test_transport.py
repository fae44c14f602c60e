"""The transports over the real thing: two ssh hops by either login, then `pct exec` into a container."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Iterator

import pytest

from hostkit.errors import HostKeyError, ProtocolError, RemoteTimeoutError, UnreachableError
from hostkit.inventory import load
from hostkit.transport.connections import Connections
from tests.fleet.fleet import Fleet
from tests.fleet.processes import until

pytestmark = pytest.mark.fleet

HOSTS = ["ct129", "pve", "pve-forward", "ct200", "ct200-forward"]
ODD_WORDS = [
    b"plain",
    b"",
    b"a b",
    b"-n",
    b"--",
    b"$HOME",
    b"`id`",
    b"*",
    b"it's",
    b'"quoted"',
    b"back\\slash",
    b"semi;colon|pipe>file",
    b"new\nline\n",
    b"tab\t",
    b"!bang",
    "ünïcode".encode(),
    b"not utf-8 \xff\xfe",
]


def place(host: str) -> str:
    """Return the fleet's name of an inventory host."""
    return host.removesuffix("-forward")


@pytest.fixture(scope="module")
def connections(shared_fleet: Fleet) -> Iterator[Connections]:
    with Connections(load(shared_fleet.inventory_path)) as open_ones:
        yield open_ones


@contextlib.contextmanager
def connected(fleet: Fleet) -> Iterator[Connections]:
    with Connections(load(fleet.inventory_path)) as open_ones:
        yield open_ones


@pytest.mark.parametrize("host", HOSTS)
def test_a_command_runs_on_the_host_that_was_named(connections: Connections, host: str) -> None:
    assert connections.transport(host).run(["hostname"]).text() == f"{place(host)}\n"


@pytest.mark.report("f5")
@pytest.mark.parametrize("host", HOSTS)
def test_every_byte_of_an_argv_arrives(connections: Connections, host: str) -> None:
    words = [word.decode("utf-8", "surrogateescape") for word in ODD_WORDS]
    done = connections.transport(host).run(["printf", "%s\\0", *words])
    assert done.stdout.split(b"\0")[:-1] == ODD_WORDS


@pytest.mark.report("f1")
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("code", [0, 1, 3, 255])
def test_an_exit_code_comes_back_as_it_was(connections: Connections, host: str, code: int) -> None:
    done = connections.transport(host).run(["sh", "-c", f"echo out; echo err >&2; exit {code}"])
    assert (done.exit, done.stdout, done.stderr) == (code, b"out\n", b"err\n")


@pytest.mark.parametrize("host", HOSTS)
def test_no_program_is_127_and_a_killed_one_128_and_its_signal(connections: Connections, host: str) -> None:
    transport = connections.transport(host)
    assert transport.run(["no-such-program"]).exit == 127
    assert transport.run(["sh", "-c", "kill -9 $$"]).exit == 137


@pytest.mark.parametrize("host", HOSTS)
def test_megabytes_pass_both_ways_unharmed(connections: Connections, host: str) -> None:
    data = bytes(range(256)) * (4 << 12)
    done = connections.transport(host).run(["cat"], stdin=data)
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()


@pytest.mark.parametrize("host", HOSTS)
def test_a_timeout_ends_the_command_on_the_far_side_too(
    connections: Connections, shared_fleet: Fleet, host: str
) -> None:
    assert connections.transport(host).run(["true"]).ok  # connecting is not part of the command's time
    with pytest.raises(RemoteTimeoutError):
        connections.transport(host).run(["sleep", "7654"], timeout=1)
    until(
        lambda: ["sleep", "7654"] not in shared_fleet.processes(place(host)).values(),
        f"the end of the command on {host}",
    )


@pytest.mark.report("f3", "f9")
@pytest.mark.parametrize("host", ["ct200", "ct200-forward"])
def test_a_container_gets_its_own_environment_not_the_hosts(connections: Connections, host: str) -> None:
    lines = connections.transport(host).run(["env"]).text().splitlines()
    environment = dict(line.split("=", 1) for line in lines if "=" in line)
    assert "/usr/local/bin" in environment["PATH"].split(":")
    assert environment["HOME"] == "/root"
    assert "SSH_CONNECTION" not in environment


def test_hosts_behind_one_hop_share_its_connection(fleet: Fleet) -> None:
    with connected(fleet) as connections:
        for host in HOSTS:
            connections.transport(host).run(["true"])
        sessions = [
            words for words in fleet.processes("ct129").values() if words[0].startswith("sshd: root@")
        ]
        assert len(sessions) <= 1
    fleet.settle()


def test_threads_use_one_connection_at_the_same_time(connections: Connections) -> None:
    answers: dict[str, str] = {}

    def ask(host: str) -> None:
        answers[host] = connections.transport(host).run(["sh", "-c", "sleep 0.2; hostname"]).text()

    threads = [threading.Thread(target=ask, args=(host,)) for host in HOSTS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert answers == {host: f"{place(host)}\n" for host in HOSTS}


@pytest.mark.parametrize("host", ["pve", "pve-forward"])
def test_a_changed_host_key_is_refused_and_its_hop_named(fleet: Fleet, host: str) -> None:
    where = "ct129" if host == "pve" else None
    stranger = "10.0.0.1 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEXV1ZIJz4aj5bdV8rBpGXZ5ktfXP2OJeBRBcUIU1Sod\n"
    known = fleet.root("ct129") / "root/.ssh/known_hosts" if where else fleet.home / "known_hosts"
    lines = [line for line in known.read_text().splitlines() if not line.startswith("pve,")]
    known.write_text("\n".join([*lines, stranger.replace("10.0.0.1", f"pve,{fleet.slot.inner(6)}")]))
    with connected(fleet) as connections, pytest.raises(HostKeyError) as caught:
        connections.transport(host).run(["true"])
    assert caught.value.hop == host


@pytest.mark.parametrize(
    ("host", "befalls", "hop"),
    [
        ("ct200", "pve refuses", "pve"),
        ("ct200-forward", "pve refuses", "pve-forward"),
        ("ct200", "ct200 is stopped", "ct200"),
        ("ct200", "inner cable is cut", "pve"),
        ("ct200-forward", "inner cable is cut", "pve-forward"),
        ("ct200", "ct129 hangs", "ct129"),
    ],
)
def test_what_cannot_be_reached_names_the_hop_that_failed(
    fleet: Fleet, host: str, befalls: str, hop: str
) -> None:
    {
        "pve refuses": lambda: fleet.stop("pve"),
        "ct200 is stopped": lambda: fleet.stop("ct200"),
        "inner cable is cut": lambda: fleet.cut(inner=True),
        "ct129 hangs": lambda: fleet.freeze("ct129"),
    }[befalls]()
    began = time.monotonic()
    with connected(fleet) as connections, pytest.raises((UnreachableError, ProtocolError)) as caught:
        connections.transport(host).run(["true"], timeout=30)
    assert getattr(caught.value, "hop", caught.value.where) == hop
    assert time.monotonic() - began < 90


@pytest.mark.report("e15")
@pytest.mark.parametrize("host", ["ct129", "ct200", "ct200-forward"])
def test_a_network_that_goes_silent_in_the_middle_of_a_command_is_noticed(fleet: Fleet, host: str) -> None:
    with connected(fleet) as connections:
        transport = connections.transport(host)
        assert transport.run(["true"]).ok
        words = ["sleep", "6000"]

        def cut() -> None:
            until(lambda: words in fleet.processes(place(host)).values(), "the command's beginning")
            fleet.cut()

        cutter = threading.Thread(target=cut)
        cutter.start()
        began = time.monotonic()
        with pytest.raises((UnreachableError, ProtocolError)):
            transport.run(words)
        cutter.join()
        assert time.monotonic() - began < 120
