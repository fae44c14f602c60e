"""What goes wrong on the way is told by the hop it happened at, in its budget, and never taken for an answer."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostkit.errors import (
    HostkitError,
    LostError,
    ProtocolError,
    RemoteTimeoutError,
    UnreachableError,
)
from hostkit.transport.base import Transport
from hostkit.transport.connections import Connections
from hostkit.transport.programs import run
from hostkit.transport.programs.run import run_program

from .reaching import PATIENT, QUICK, SOON, client, reach, until
from .servers import Fleet, Server, inventory

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
    assert caught.value.hops_reached == ("outer",)


@pytest.mark.report("e3")
@pytest.mark.parametrize("trap", [blackhole, mute])
def test_a_blackholed_first_hop_costs_its_own_budget_and_is_named(fleet: Fleet, trap: Any) -> None:
    with trap() as port:
        started = time.monotonic()
        host = fleet.host("outer", timeouts={**PATIENT["timeouts"], "connect": "2s"}) | {"port": port}
        with reach("ct129", ct129=host) as transport, pytest.raises(RemoteTimeoutError) as caught:
            transport.run(["true"])
        assert time.monotonic() - started < SOON
    assert (caught.value.hop, caught.value.hops_reached) == ("ct129", ())


@pytest.mark.parametrize("login", ["forward", "there"])
def test_a_refused_inner_connection_names_the_inner_hop(fleet: Fleet, login: str) -> None:
    with closed() as port:
        inner = fleet.host("inner", via="outer", login=login) | {"port": port}
        with (
            reach("pve", outer=fleet.host("outer"), pve=inner) as transport,
            pytest.raises(UnreachableError) as caught,
        ):
            transport.run(["true"])
    assert (caught.value.hop, caught.value.hops_reached) == ("pve", ("outer",))


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
        pytest.raises(UnreachableError, match="cannot resolve") as caught,
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
        self.connections = 0
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
            self.connections += 1
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
            with pytest.raises(LostError, match="sent nothing") as caught:
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


@pytest.mark.parametrize("name", ["pve", "ct200"])
def test_a_flood_on_stderr_leaves_neither_command_nor_frame_once_hostkit_is_gone(
    fleet: Fleet, tmp_path: Path, name: str
) -> None:
    """An ssh on the way goes on reading stderr for nobody: what ended it was a time limit, where there was one."""
    pids = tmp_path / "pids"
    hosts = {"ct129": fleet.host("outer"), "pve": fleet.host("inner", via="ct129", login="there")}
    with (
        reach(name, **hosts, ct200={"pct": 200, "via": "pve"}) as transport,
        pytest.raises(ProtocolError, match="exceeded 4 MiB"),
    ):
        transport.run(["sh", "-c", f"echo $$ $PPID >{pids}; exec yes xxx >&2"], max_bytes=4 << 20)
    for pid in pids.read_text().split():
        until(lambda pid=pid: not Path(f"/proc/{pid}").exists(), f"the end of {pid}")


@pytest.mark.report("b11")
@pytest.mark.parametrize("retry", [True, False])
@pytest.mark.parametrize(
    "way", ["one hop", "two hops", "there", "pct", "there, multiplexed", "pct, multiplexed"]
)
def test_a_program_that_only_reads_or_listens_ends_when_nobody_listens(
    fleet: Fleet,
    proxied: tuple[Proxy, dict[str, object]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    retry: bool,
) -> None:
    reader = (
        "import os, time\n"
        "def serve(request):\n"
        "    with open(request['pid'], 'w') as out: out.write(str(os.getpid()))\n"
        "    os.rename(request['pid'], request['begun'])\n"
        "    time.sleep(600)\n"
    )
    text = run._text
    monkeypatch.setattr(run, "_text", lambda name: reader if name == "reader" else text(name))
    proxy, outer = proxied
    hosts = {"ct129": outer}
    if way != "one hop":
        hosts["pve"] = fleet.host("inner", via="ct129", login="there" if "there" in way else "forward")
    if "pct" in way:
        hosts["ct200"] = {"pct": 200, "via": "pve"}
    begun = tmp_path / "begun"
    request = {"pid": str(tmp_path / "pid"), "begun": str(begun)}
    with reach(list(hosts)[-1], multiplexed="multiplexed" in way, **hosts) as transport:

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
# the answer may come in fewer packets than the time before, and behind it only what ends a channel
@pytest.mark.parametrize("part", [0.02, 0.2, 0.5, 0.7, 0.8, 0.85])
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
    assert caught.value.hops_reached == (("ct129",) if behind else ())
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
        with (
            reach("a", a=host) as transport,
            pytest.raises(UnreachableError, match="before sending an SSH banner"),
        ):
            transport.run(["true"])
        assert time.monotonic() - started < SOON
        server.shutdown(socket.SHUT_RDWR)


def test_a_first_hop_that_is_expected_is_dialled_once(fleet: Fleet, proxied: tuple[Proxy, Any]) -> None:
    proxy, host = proxied
    with Connections(inventory(ct129=host)) as connections:
        connections.preconnect("ct129")
        assert connections.transport("ct129").run(["echo", "there"]).text() == "there\n"
        assert proxy.connections == 1


def test_a_first_hop_that_is_expected_and_refuses_is_told_when_it_is_asked(fleet: Fleet) -> None:
    with closed() as port:
        host = fleet.host("outer") | {"port": port}
        with Connections(inventory(ct129=host)) as connections:
            connections.preconnect("ct129")
            with pytest.raises(UnreachableError, match="refused"):
                connections.transport("ct129").run(["true"])


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
