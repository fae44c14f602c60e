"""What goes wrong on the way is told by the hop it happened at, in its budget, and never taken for an answer."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from hostkit.errors import (
    AuthError,
    HostKeyError,
    HostkitError,
    LostError,
    ProtocolError,
    RemoteTimeoutError,
    UnreachableError,
)
from hostkit.transport.base import Transport
from hostkit.transport.connections import Connections
from hostkit.transport.program import run_program

from .servers import USER, Fleet, Server, inventory, keygen

QUICK = {"timeouts": {"connect": "2s", "auth": "3s", "idle": "3s"}}
# of whatever is not meant to give up: a test that took less than SOON has not waited for any of these
PATIENT = {"timeouts": {"connect": "150s", "auth": "150s", "idle": "150s"}}
SOON = 60


@contextlib.contextmanager
def reach(name: str, **hosts: dict[str, object]) -> Iterator[Transport]:
    with Connections(inventory(**hosts)) as connections:
        yield connections.transport(name)


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


def client(fleet: Fleet, server: Server, **more: object) -> dict[str, object]:
    return fleet.host(server, known_hosts=str(server.root / "known_hosts"), **more)


# host keys


def test_an_unknown_host_key_is_refused_with_its_fingerprint_and_a_way_to_verify(
    fleet: Fleet, tmp_path: Path
) -> None:
    server = fleet.server("outer")
    empty = tmp_path / "known_hosts"
    empty.write_text("")
    with (
        reach("ct129", ct129=fleet.host(server, known_hosts=str(empty))) as transport,
        pytest.raises(HostKeyError) as caught,
    ):
        transport.run(["true"])
    assert caught.value.hop == "ct129"
    said = str(caught.value)
    printed = subprocess.run(
        ["ssh-keygen", "-lf", server.folder / "host_key.pub"], capture_output=True, text=True
    )
    assert printed.stdout.split()[1] in said
    assert "host-trust ct129 --fingerprint" in said
    assert "console" in said
    for word in ("StrictHostKeyChecking", "ssh-keygen -R", "accept-new", "/dev/null"):
        assert word not in said


def test_a_changed_host_key_shows_both_fingerprints_and_since_when(fleet: Fleet, tmp_path: Path) -> None:
    server = fleet.server("outer")
    other = keygen(tmp_path / "other")
    blob = other.with_suffix(".pub").read_text().split()[:2]
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{server.port} {' '.join(blob)}\n")
    os.utime(known, (1_700_000_000, 1_700_000_000))
    with (
        reach("ct129", ct129=fleet.host(server, known_hosts=str(known))) as transport,
        pytest.raises(HostKeyError) as caught,
    ):
        transport.run(["true"])
    for key in (server.folder / "host_key.pub", other.with_suffix(".pub")):
        printed = subprocess.run(["ssh-keygen", "-lf", key], capture_output=True, text=True)
        assert printed.stdout.split()[1] in str(caught.value)
    assert "CHANGED" in str(caught.value)
    assert "2023-11-14" in str(caught.value)


def test_a_revoked_host_key_is_refused_even_where_it_is_also_trusted(fleet: Fleet, tmp_path: Path) -> None:
    server = fleet.server("outer")
    known = tmp_path / "known_hosts"
    line = server.known_hosts_line()
    known.write_text(line + "@revoked " + line)
    with (
        reach("ct129", ct129=fleet.host(server, known_hosts=str(known))) as transport,
        pytest.raises(HostKeyError, match="revoked"),
    ):
        transport.run(["true"])


@pytest.mark.parametrize("login", ["forward", "there"])
def test_an_inner_hops_host_key_is_verified_too(fleet: Fleet, tmp_path: Path, login: str) -> None:
    empty = tmp_path / "known_hosts"
    empty.write_text("")
    inner = fleet.host("inner", via="outer", login=login, known_hosts=str(empty))
    with (
        reach("pve", outer=fleet.host("outer"), pve=inner) as transport,
        pytest.raises(HostKeyError) as caught,
    ):
        transport.run(["true"])
    assert caught.value.hop == "pve"
    assert caught.value.stood == ("outer",)


def test_behind_a_hop_the_inventory_name_is_looked_up_as_well(fleet: Fleet, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(fleet.server("inner").known_hosts_line("pve"))
    inner = fleet.host("inner", via="outer", known_hosts=str(known))
    with reach("pve", outer=fleet.host("outer"), pve=inner) as transport:
        assert transport.run(["true"]).ok
    with (
        reach("pve", pve=fleet.host("inner", known_hosts=str(known))) as transport,
        pytest.raises(HostKeyError),
    ):
        transport.run(["true"])


def test_a_hashed_entry_and_an_alias_are_understood(fleet: Fleet, tmp_path: Path) -> None:
    server = fleet.server("outer")
    known = tmp_path / "known_hosts"
    known.write_text(server.known_hosts_line("the-alias", f"[127.0.0.1]:{server.port}"))
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", known], check=True, capture_output=True)
    with reach("a", a=fleet.host(server, known_hosts=str(known))) as transport:
        assert transport.run(["true"]).ok
    config = tmp_path / "config"
    config.write_text("Host a\n  HostKeyAlias the-alias\n")
    with reach("a", a=fleet.host(server, known_hosts=str(known), ssh_config=str(config))) as transport:
        assert transport.run(["true"]).ok


# logins


@pytest.mark.report("e17")
def test_a_wrong_user_is_permission_denied_not_a_locked_key(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with (
        reach("a", a=fleet.host("outer", user="nobody-of-that-name")) as transport,
        pytest.raises(AuthError) as caught,
    ):
        transport.run(["true"])
    assert "permission denied for user nobody-of-that-name" in str(caught.value)
    assert "passphrase" not in str(caught.value)
    assert caught.value.hop == "a"


@pytest.mark.report("e17", "h1", "h9")
@pytest.mark.parametrize("agent", [None, "/nonexistent/agent"])
def test_a_locked_key_without_an_agent_says_so_at_once(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: str | None
) -> None:
    if agent is None:
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    else:
        monkeypatch.setenv("SSH_AUTH_SOCK", agent)
    key = tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", key], check=True)
    started = time.monotonic()
    with (
        reach("a", a=fleet.host("outer", identity=str(key), **PATIENT)) as transport,
        pytest.raises(AuthError) as caught,
    ):
        transport.run(["true"])
    assert f"{key} needs a passphrase, and no agent" in str(caught.value)
    assert time.monotonic() - started < SOON


@pytest.mark.report("h1")
def test_a_dead_agent_is_no_obstacle_to_a_key_file(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/nonexistent/agent")
    with reach("a", a=fleet.host("outer")) as transport:
        assert transport.run(["true"]).ok


@pytest.mark.report("e17")
def test_a_locked_key_of_the_old_format_is_a_locked_key(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    key = tmp_path / "old"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "secret", "-f", key], check=True
    )
    with (
        reach("a", a=fleet.host("outer", identity=str(key))) as transport,
        pytest.raises(AuthError, match="passphrase"),
    ):
        transport.run(["true"])
    key.write_text("this is no key\n")
    with (
        reach("a", a=fleet.host("outer", identity=str(key))) as transport,
        pytest.raises(AuthError, match="no private key"),
    ):
        transport.run(["true"])


@pytest.mark.report("e17")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ssh-ed25519 AAAAC3Nza me@laptop\n", "key.pub is a public key; name the private one, {folder}/key"),
        ("ssh-ed25519-cert-v01@openssh.com AAAAIHNz me\n", "is a public key"),
        ("PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\n", "is a PuTTY key"),
        ("", "is empty"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNza", "is no private key, or a damaged one"),
    ],
    ids=["public", "certificate", "PuTTY", "empty", "cut"],
)
def test_a_file_that_is_no_private_key_is_called_by_its_name(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    key = tmp_path / "key.pub"
    key.write_text(text)
    with (
        reach("a", a=fleet.host("outer", identity=str(key))) as transport,
        pytest.raises(AuthError) as caught,
    ):
        transport.run(["true"])
    assert said.format(folder=tmp_path) in str(caught.value)
    assert "no such file" not in str(caught.value)


@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ed25519"])
def test_a_key_as_openssl_writes_it_logs_in_as_by_openssh(
    fleet: Fleet, own: Any, tmp_path: Path, kind: str
) -> None:
    from cryptography.hazmat.primitives import serialization

    keygen(tmp_path / "id", "-t", kind)
    loaded = serialization.load_ssh_private_key((tmp_path / "id").read_bytes(), password=None)
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    (tmp_path / "pkcs8").write_bytes(loaded.private_bytes(serialization.Encoding.PEM, form, plain))
    server = own("server")
    with reach("a", a=client(fleet, server, identity=str(tmp_path / "pkcs8"))) as transport:
        assert transport.run(["true"]).ok


def test_a_key_that_is_not_there_is_named(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    missing = tmp_path / "no-key"
    with (
        reach("a", a=fleet.host("outer", identity=str(missing))) as transport,
        pytest.raises(AuthError) as caught,
    ):
        transport.run(["true"])
    assert str(missing) in str(caught.value)


def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.01)


def listens(path: Path) -> bool:
    """Whether somebody answers at a Unix socket: its file is there a moment before."""
    with socket.socket(socket.AF_UNIX) as caller:
        return caller.connect_ex(str(path)) == 0


@pytest.fixture
def full_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An agent with six keys that no server knows."""
    path = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
    until(lambda: listens(path), "an agent that listens")
    for number in range(6):
        subprocess.run(["ssh-add", "-q", keygen(tmp_path / f"wrong{number}")], check=True)
    yield path
    agent.terminate()
    agent.wait(10)


@pytest.mark.report("e1")
def test_a_full_agent_does_not_use_up_the_servers_patience(fleet: Fleet, own: Any, full_agent: Path) -> None:
    server = own("strict", "MaxAuthTries 3")
    with reach("a", a=client(fleet, server)) as transport:
        assert transport.run(["true"]).ok


@pytest.mark.report("e1")
def test_too_many_keys_is_said_in_these_words(
    fleet: Fleet, own: Any, full_agent: Path, tmp_path: Path
) -> None:
    server = own("strict", "MaxAuthTries 3")
    host = client(fleet, server)
    del host["identity"]
    config = tmp_path / "config"
    config.write_text("Host *\n  IdentityFile /nonexistent/key\n")
    with (
        reach("a", a={**host, "ssh_config": str(config)}) as transport,
        pytest.raises(AuthError, match="too many keys"),
    ):
        transport.run(["true"])


@pytest.mark.report("e17")
def test_a_locked_key_that_the_agent_holds_is_used(
    fleet: Fleet, own: Any, full_agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = own("strict", "MaxAuthTries 3")
    key = tmp_path / "mine"
    key.write_bytes((tmp_path / "id").read_bytes())
    key.chmod(0o600)
    subprocess.run(["ssh-add", "-q", key], check=True)
    (tmp_path / "mine.pub").write_bytes((tmp_path / "id.pub").read_bytes())
    subprocess.run(
        ["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", key], check=True, capture_output=True
    )
    with reach("a", a=client(fleet, server, identity=str(key))) as transport:
        assert transport.run(["true"]).ok


@pytest.mark.report("e7")
def test_an_account_without_a_shell_is_a_refused_login(fleet: Fleet, own: Any) -> None:
    server = own("nologin", "ForceCommand /usr/sbin/nologin")
    with (
        reach("a", a=client(fleet, server)) as transport,
        pytest.raises(AuthError, match="takes no commands"),
    ):
        transport.run(["true"])


# hops that do not answer


@contextlib.contextmanager
def blackhole() -> Iterator[int]:
    """A port whose queue is full: connecting to it hangs, as behind a firewall that drops."""
    with socket.socket() as server, contextlib.ExitStack() as stack:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(server.getsockname())
        yield server.getsockname()[1]


@contextlib.contextmanager
def mute() -> Iterator[int]:
    """A port that accepts, and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as server:
        yield server.getsockname()[1]


@contextlib.contextmanager
def closed() -> Iterator[int]:
    """A port that refuses, and that nobody else takes meanwhile: bound, and not listened at."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@pytest.mark.report("e3")
@pytest.mark.parametrize("trap", [blackhole, mute])
@pytest.mark.parametrize("login", ["forward", "there"])
def test_a_blackholed_inner_hop_costs_its_own_budget_and_is_named(
    fleet: Fleet, trap: Any, login: str
) -> None:
    with trap() as port:
        inner = fleet.host("inner", via="outer", login=login, **QUICK) | {"port": port}
        started = time.monotonic()
        with (
            reach("pve", outer=fleet.host("outer", **PATIENT), pve=inner) as transport,
            pytest.raises(UnreachableError) as caught,
        ):
            transport.run(["true"])
        assert time.monotonic() - started < SOON
    assert caught.value.hop == "pve"
    assert caught.value.stood == ("outer",)


@pytest.mark.report("e3")
@pytest.mark.parametrize("trap", [blackhole, mute])
def test_a_blackholed_first_hop_costs_its_own_budget_and_is_named(fleet: Fleet, trap: Any) -> None:
    with trap() as port:
        started = time.monotonic()
        host = fleet.host("outer", timeouts={**PATIENT["timeouts"], "connect": "2s"}) | {"port": port}
        with reach("ct129", ct129=host) as transport, pytest.raises(RemoteTimeoutError) as caught:
            transport.run(["true"])
        assert time.monotonic() - started < SOON
    assert (caught.value.hop, caught.value.stood) == ("ct129", ())


@pytest.mark.parametrize("login", ["forward", "there"])
def test_a_refused_inner_connection_names_the_inner_hop(fleet: Fleet, login: str) -> None:
    with closed() as port:
        inner = fleet.host("inner", via="outer", login=login) | {"port": port}
        with (
            reach("pve", outer=fleet.host("outer"), pve=inner) as transport,
            pytest.raises(UnreachableError) as caught,
        ):
            transport.run(["true"])
    assert (caught.value.hop, caught.value.stood) == ("pve", ("outer",))


def test_a_refused_connection_names_the_hop(fleet: Fleet) -> None:
    with closed() as port:
        host = fleet.host("outer") | {"port": port}
        with (
            reach("ct129", ct129=host) as transport,
            pytest.raises(UnreachableError, match="refused") as caught,
        ):
            transport.run(["true"])
    assert caught.value.hop == "ct129"


def test_a_hop_without_forwarding_says_what_to_try(fleet: Fleet, own: Any) -> None:
    outer, inner = own("strict", "AllowTcpForwarding no"), own("inner")
    hosts = {"outer": client(fleet, outer), "pve": client(fleet, inner, via="outer")}
    with reach("pve", **hosts) as transport, pytest.raises(UnreachableError) as caught:
        transport.run(["true"])
    assert "login: there" in str(caught.value)
    hosts["pve"]["login"] = "there"
    with reach("pve", **hosts) as transport:
        assert transport.run(["true"]).ok


def test_a_name_that_is_not_known_is_said(fleet: Fleet) -> None:
    host = fleet.host("outer") | {"address": "no-such-host.invalid"}
    with (
        reach("ct129", ct129=host) as transport,
        pytest.raises(UnreachableError, match="not known") as caught,
    ):
        transport.run(["true"])
    assert caught.value.hop == "ct129"


def test_the_whole_commands_time_bounds_every_step(fleet: Fleet) -> None:
    with mute() as port:
        host = fleet.host("outer", **PATIENT) | {"port": port}
        started = time.monotonic()
        with (
            Connections(inventory(a=host), timeout=1) as connections,
            pytest.raises(RemoteTimeoutError),
        ):
            connections.transport("a").run(["true"])
        assert time.monotonic() - started < SOON


# connections that are lost


class Proxy:
    """A port before a server that can be cut."""

    def __init__(self, target: int, *, stall_after: int | None = None) -> None:
        self._target = target
        self._stall_after = stall_after  # bytes from the server, of all connections together
        self.passed = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._pairs: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._server.accept()
            except OSError:
                return
            there = socket.create_connection(("127.0.0.1", self._target))
            self._pairs += [here, there]
            for source, sink in ((here, there), (there, here)):
                threading.Thread(target=self._pump, args=(source, sink, sink is here), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, down: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if down:
                    if self._stall_after is not None:
                        data = data[: max(0, self._stall_after - self.passed)]
                    self.passed += len(data)
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        for sock in self._pairs:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        self._pairs.clear()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()


@pytest.fixture
def proxied(fleet: Fleet, tmp_path: Path) -> Iterator[tuple[Proxy, dict[str, object]]]:
    server = fleet.server("outer")
    proxy = Proxy(server.port)
    known = tmp_path / "known_hosts"
    known.write_text(
        server.known_hosts_line(f"[127.0.0.1]:{proxy.port}") + fleet.server("inner").known_hosts_line()
    )
    yield proxy, fleet.host(server, known_hosts=str(known)) | {"port": proxy.port}
    proxy.close()


def run_and_cut(transport: Transport, proxy: Proxy, tmp_path: Path) -> None:
    """Run a long command, and cut the connection once it has begun."""
    begun = tmp_path / "begun"

    def cut() -> None:
        until(begun.exists, "the command's beginning")
        proxy.cut()

    threading.Thread(target=cut, daemon=True).start()
    transport.run(["sh", "-c", f"echo partly; touch {begun}; sleep 60"], timeout=60)


@pytest.mark.parametrize("inner", [None, "forward", "there"])
def test_a_connection_cut_midway_is_lost_and_names_the_outermost_hop_that_fell(
    fleet: Fleet, proxied: tuple[Proxy, dict[str, object]], tmp_path: Path, inner: str | None
) -> None:
    proxy, outer = proxied
    hosts = {"ct129": outer}
    if inner:
        hosts["pve"] = fleet.host("inner", via="ct129", login=inner)
    with reach(list(hosts)[-1], **hosts) as transport:
        with pytest.raises(LostError) as caught:  # at its timeout it would be another
            run_and_cut(transport, proxy, tmp_path)
        assert caught.value.hop == "ct129"
        # the next command makes a new connection
        assert transport.run(["echo", "again"]).stdout == b"again\n"


def test_a_nested_ssh_that_loses_its_connection_names_the_inner_hop(
    fleet: Fleet, proxied: tuple[Proxy, dict[str, object]], tmp_path: Path
) -> None:
    proxy, inner = proxied
    hosts = {"ct129": fleet.host("inner"), "pve": inner | {"via": "ct129", "login": "there"}}
    with reach("pve", **hosts) as transport, pytest.raises((LostError, ProtocolError)) as caught:
        run_and_cut(transport, proxy, tmp_path)
    assert "pve" in str(caught.value)


@pytest.mark.report("e15")
def test_a_server_that_falls_silent_is_found_out_within_the_idle_budget(
    fleet: Fleet, own: Any, tmp_path: Path
) -> None:
    server, begun = own("frozen"), tmp_path / "begun"
    with reach("ct129", ct129=client(fleet, server, **QUICK)) as transport:
        frozen: list[int] = []

        def freeze() -> None:
            until(begun.exists, "the command's beginning")
            for each in sshd_child(server):
                os.kill(each, signal.SIGSTOP)
                frozen.append(each)

        freezer = threading.Thread(target=freeze)
        freezer.start()
        started = time.monotonic()
        try:
            with pytest.raises(LostError, match="silent") as caught:
                transport.run(["sh", "-c", f"touch {begun}; exec sleep 90"])
            assert time.monotonic() - started < SOON
            assert caught.value.hop == "ct129"
        finally:
            freezer.join()
            for each in frozen:
                os.kill(each, signal.SIGCONT)
        assert frozen


def sshd_child(server: Server) -> list[int]:
    """The sshd processes that serve the server's connections."""
    assert server.process is not None
    found, todo = [], [server.process.pid]
    while todo:
        pid = todo.pop()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for text in children:
            with contextlib.suppress(OSError):  # one may end at this moment
                if b"sshd" in Path(f"/proc/{text}/cmdline").read_bytes():
                    found.append(int(text))
                    todo.append(int(text))
    return found


def test_a_slow_command_on_a_healthy_connection_outlives_the_idle_budget(fleet: Fleet) -> None:
    with reach("ct129", ct129=fleet.host("outer", timeouts={"idle": "3s"})) as transport:
        assert transport.run(["sh", "-c", "sleep 7; echo there"]).stdout == b"there\n"


@pytest.mark.report("b11")
@pytest.mark.parametrize("retry", [True, False])
@pytest.mark.parametrize("way", ["one hop", "two hops", "there", "pct"])
def test_a_program_that_only_reads_or_listens_ends_when_nobody_listens(
    fleet: Fleet,
    proxied: tuple[Proxy, dict[str, object]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    retry: bool,
) -> None:
    (tmp_path / "package" / "remote").mkdir(parents=True)
    (tmp_path / "package" / "remote" / "reader.py").write_text(
        "import os, time\n"
        "def serve(request):\n"
        "    with open(request['pid'], 'w') as out: out.write(str(os.getpid()))\n"
        "    os.rename(request['pid'], request['begun'])\n"
        "    time.sleep(600)\n"
    )
    monkeypatch.setattr(resources, "files", lambda _: tmp_path / "package")
    proxy, outer = proxied
    hosts = {"ct129": outer}
    if way != "one hop":
        hosts["pve"] = fleet.host("inner", via="ct129", login="there" if way == "there" else "forward")
    if way == "pct":
        hosts["ct200"] = {"pct": 200, "via": "pve"}
    begun = tmp_path / "begun"
    request = {"pid": str(tmp_path / "pid"), "begun": str(begun)}
    with reach(list(hosts)[-1], **hosts) as transport:

        def cut() -> None:
            until(begun.exists, "the program's beginning")
            begun.rename(tmp_path / "first")
            proxy.close()

        threading.Thread(target=cut, daemon=True).start()
        with pytest.raises(UnreachableError):
            run_program(transport, sys.executable, "reader", request, retry=retry, listen=True, timeout=150)
    pid = int((tmp_path / "first").read_text())
    until(lambda: not Path(f"/proc/{pid}").exists(), "the far side to notice")


def through(
    fleet: Fleet, folder: Path, proxy: Proxy, budgets: dict[str, Any], *, behind: bool
) -> dict[str, dict[str, object]]:
    """Return the hosts to `pve` by a proxy, directly or behind ct129."""
    server, known = fleet.server("inner"), folder / "known_hosts"
    known.write_text(fleet.known_hosts.read_text() + server.known_hosts_line(f"[127.0.0.1]:{proxy.port}"))
    pve = fleet.host(server, known_hosts=str(known), **budgets) | {"port": proxy.port}
    return (
        {"ct129": fleet.host("outer", **PATIENT), "pve": pve | {"via": "ct129"}} if behind else {"pve": pve}
    )


@pytest.mark.report("e3", "e15")
@pytest.mark.parametrize("part", [0.02, 0.2, 0.5, 0.7, 0.8, 0.9])
@pytest.mark.parametrize("behind", [False, True])
def test_a_server_that_stalls_at_any_point_costs_no_more_than_its_budgets(
    fleet: Fleet, tmp_path: Path, part: float, behind: bool
) -> None:
    whole = Proxy(fleet.server("inner").port)
    # patiently: answers to the pulse of a short idle budget would count as well
    with reach("pve", **through(fleet, tmp_path, whole, PATIENT, behind=behind)) as transport:
        assert transport.run(["true"]).ok
    whole.close()
    proxy = Proxy(fleet.server("inner").port, stall_after=int(whole.passed * part))
    started = time.monotonic()
    try:
        with (
            reach("pve", **through(fleet, tmp_path, proxy, QUICK, behind=behind)) as transport,
            pytest.raises(UnreachableError) as caught,
        ):
            transport.run(["true"])
    finally:
        proxy.close()
    assert caught.value.hop == "pve"
    assert caught.value.stood == (("ct129",) if behind else ())
    assert time.monotonic() - started < SOON


def test_a_port_that_closes_at_once_is_told_at_once(fleet: Fleet) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].close()

        threading.Thread(target=refuse, daemon=True).start()
        host = fleet.host("outer", **PATIENT) | {"port": server.getsockname()[1]}
        started = time.monotonic()
        with reach("a", a=host) as transport, pytest.raises(UnreachableError, match="before any SSH banner"):
            transport.run(["true"])
        assert time.monotonic() - started < SOON
        server.shutdown(socket.SHUT_RDWR)


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
        ("exit 0", ProtocolError, "not seen to start"),
        ("echo RUNNING; exit 0", ProtocolError, "not seen to start"),
        (
            'shift 3; setsid "$@" & while [ ! -e $HOME/begun ]; do sleep 0.02; done; kill -9 -$!',
            ProtocolError,
            "broke off",
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
            assert caught.value.stood == ("pve",)


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


def test_a_dead_hop_costs_its_budget_once_for_all_who_wait_for_it(fleet: Fleet) -> None:
    with mute() as port:
        outer = fleet.host("outer", **QUICK) | {"port": port}
        faults: list[HostkitError] = []
        with Connections(inventory(ct129=outer, ct={"pct": 200, "via": "ct129"})) as connections:

            def ask(name: str) -> None:
                try:
                    connections.transport(name).run(["true"])
                except HostkitError as error:
                    faults.append(error)

            threads = [threading.Thread(target=ask, args=(name,)) for name in ("ct129", "ct") * 4]
            started = time.monotonic()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(120)
            assert time.monotonic() - started < 8 * 2
    assert [getattr(fault, "hop", None) for fault in faults] == ["ct129"] * 8
