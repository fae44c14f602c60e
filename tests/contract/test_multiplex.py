"""A host that is asked more than once is logged in to once; and what becomes of the answers when that goes wrong."""

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

from hostkit.errors import LostError, RemoteTimeoutError, UnreachableError, UsageError
from hostkit.transport import multiplex
from hostkit.transport.base import Transport
from hostkit.transport.connections import Connections
from hostkit.transport.local import LocalPipe

from .reaching import PATIENT, QUICK, SOON, client, reach, until
from .servers import Fleet, inventory

PARENT = ["sh", "-c", "echo $PPID"]


def hosts(fleet: Fleet, **inner: Any) -> dict[str, dict[str, object]]:
    return {
        "ct129": fleet.host("outer", **PATIENT),
        "pve": fleet.host("inner", via="ct129", login="there", **PATIENT) | inner,
        "ct200": {"pct": 200, "via": "pve", "python": sys.executable},
    }


@pytest.fixture
def ct200(fleet: Fleet) -> Iterator[Transport]:
    with reach("ct200", multiplexed=True, **hosts(fleet)) as transport:
        yield transport


def command_server(transport: Transport) -> int:
    """Return its pid: what it runs are children of its own."""
    pid = int(transport.run(PARENT).text())
    assert b"-I" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return pid


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_all_questions_of_a_command_go_to_one_command_server_that_ends_with_it(fleet: Fleet) -> None:
    with reach("ct200", multiplexed=True, **hosts(fleet)) as transport:
        pid = command_server(transport)
        assert command_server(transport) == pid
    until(lambda: gone(pid), "its end")


def test_it_goes_where_nothing_will_be_asked_for_a_while_and_another_comes_when_something_is(
    fleet: Fleet,
) -> None:
    with Connections(inventory(**hosts(fleet)), multiplexed=True) as connections:
        pid = command_server(connections.transport("ct200"))
        connections.close_multiplexer("ct200")
        until(lambda: gone(pid), "its end")
        assert command_server(connections.transport("ct200")) != pid


def test_a_host_that_is_connected_to_directly_needs_none(fleet: Fleet) -> None:
    with reach("ct129", multiplexed=True, **hosts(fleet)) as transport:
        one, other = (transport.run(PARENT).text() for _ in range(2))
    assert one != other


def test_questions_do_not_wait_for_one_another(ct200: Transport, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    said: list[str] = []
    waits = threading.Thread(target=lambda: said.append(ct200.run(["cat", str(gate)]).text()))
    command_server(ct200)
    waits.start()
    assert ct200.run(["echo", "meanwhile"]).text() == "meanwhile\n"
    assert not said
    gate.write_text("opened")
    waits.join(SOON)
    assert said == ["opened"]


def test_where_no_python_is_each_question_is_asked_by_itself(fleet: Fleet) -> None:
    chain = hosts(fleet)
    chain["ct200"]["python"] = "/no/such/python3"
    with reach("ct200", multiplexed=True, **chain) as transport:
        assert [transport.run(["echo", word]).text() for word in "ab"] == ["a\n", "b\n"]


@pytest.mark.parametrize("script", ['echo {"old":"2.7"}; exit 3', "exit 0", "exec sleep 30"])
def test_where_something_else_stands_for_python_each_question_is_asked_by_itself(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    stand_in = tmp_path / "python3"
    stand_in.write_text(f"#!/bin/sh\n{script}\n")
    stand_in.chmod(0o755)
    brief = {"timeouts": {"connect": "1s", "auth": "1s"}}
    chain = hosts(fleet, **brief)
    chain["ct129"] |= brief
    chain["ct200"] |= brief | {"python": str(stand_in)}
    monkeypatch.setattr(multiplex, "START_SECONDS", 0.0)
    with reach("ct200", multiplexed=True, **chain) as transport:
        assert transport.run(["echo", "a"]).text() == "a\n"


def test_one_that_is_killed_loses_what_it_ran_and_the_next_question_is_asked_by_itself(
    ct200: Transport, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    pid = command_server(ct200)

    def kill() -> None:
        until(begun.exists, "the beginning")
        os.kill(pid, signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    with pytest.raises(LostError) as caught:
        ct200.run(["sh", "-c", f"touch {begun}; exec sleep 20"])
    assert caught.value.hop == "ct200"
    assert ct200.run(["echo", "still"]).text() == "still\n"


def test_noise_amid_the_answers_is_taken_for_none_of_them(fleet: Fleet, own: Any, tmp_path: Path) -> None:
    mail, begun = tmp_path / "mail", tmp_path / "begun"
    os.mkfifo(mail)
    # what a program that a login shell leaves behind does: it prints where the answers come
    chatty = own("chatty", f'ForceCommand timeout 60 cat {mail} & eval "$SSH_ORIGINAL_COMMAND"')
    chain: dict[str, Any] = {"ct129": client(fleet, chatty, **PATIENT)}
    chain["ct200"] = {"pct": 200, "via": "ct129", "python": sys.executable}

    def print_it() -> None:
        until(begun.exists, "the beginning")
        mail.write_text("You have new mail in /var/mail/root\n")
        mail.unlink()

    script = f"echo $$ >{begun}.new; mv {begun}.new {begun}; while echo on; do sleep 0.1; done"

    with reach("ct200", multiplexed=True, **chain) as transport:
        command_server(transport)
        threading.Thread(target=print_it, daemon=True).start()
        with pytest.raises(LostError):
            transport.run(["sh", "-c", script])
        # else one that holds a lock would keep the next that is asked for the same
        until(lambda: gone(int(begun.read_text())), "the end of what it ran")
        assert transport.run(["echo", "still"]).text() == "still\n"


def test_a_hop_that_falls_silent_is_named_within_its_budget(fleet: Fleet, tmp_path: Path) -> None:
    begun, chain = tmp_path / "begun", hosts(fleet, **QUICK)
    with reach("ct200", multiplexed=True, **chain) as transport:
        pid = command_server(transport)
        session = sshd_of(pid)

        def freeze() -> None:
            until(begun.exists, "the beginning")
            os.kill(session, signal.SIGSTOP)

        threading.Thread(target=freeze, daemon=True).start()
        began = time.monotonic()
        try:
            with pytest.raises(LostError) as caught:
                transport.run(["sh", "-c", f"touch {begun}; exec sleep 100"])
        finally:
            os.kill(session, signal.SIGCONT)
    assert caught.value.hop == "pve"
    assert time.monotonic() - began < SOON


def sshd_of(pid: int) -> int:
    """Return the sshd process that a process descends from."""
    while b"sshd" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def test_the_time_of_the_whole_command_counts_for_its_questions(fleet: Fleet) -> None:
    with Connections(inventory(**hosts(fleet)), timeout=SOON, multiplexed=True) as connections:
        transport = connections.transport("ct200")
        command_server(transport)
        connections.deadline = time.monotonic() + 1  # what is left of it
        with pytest.raises(RemoteTimeoutError):
            connections.transport("ct200").run(["sleep", "100"])


def test_what_has_a_time_limit_is_ended_at_it_though_nobody_asks_any_more(
    fleet: Fleet, tmp_path: Path
) -> None:
    told = tmp_path / "pid"
    with reach("ct200", multiplexed=True, **hosts(fleet)) as transport:
        pid = command_server(transport)
        asking = threading.Thread(target=lambda: _lost(transport, told), daemon=True)
        asking.start()
        until(told.exists, "the beginning")
    asking.join(SOON)
    until(lambda: gone(int(told.read_text())), "the end of what it ran")
    until(lambda: gone(pid), "its end")


def _lost(transport: Transport, told: Path) -> None:
    script = f"trap '' TERM; echo $$ >{told}.new; mv {told}.new {told}; while :; do sleep 0.1; done"
    with pytest.raises(LostError):
        transport.run(["sh", "-c", script], timeout=3)


def test_a_host_that_is_expected_has_its_command_server_before_it_is_asked(
    fleet: Fleet, tmp_path: Path
) -> None:
    came, python = tmp_path / "came", tmp_path / "python3"
    python.write_text(f'#!/bin/sh\ntouch {came}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    chain = hosts(fleet)
    chain["ct200"]["python"] = str(python)
    with Connections(inventory(**chain), multiplexed=True) as connections:
        connections.preconnect("ct200", "ct129")
        until(came.exists, "its command server")
        command_server(connections.transport("ct200"))


@pytest.mark.parametrize("is_multiplexed", [True, False])
def test_an_expected_host_that_is_not_reached_is_tried_once_and_told_when_it_is_asked(
    fleet: Fleet, is_multiplexed: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=50) as server:
        tries: list[int] = []

        def refuse() -> None:
            while True:
                try:
                    caller, _ = server.accept()
                except OSError:
                    return
                tries.append(1)
                caller.close()

        threading.Thread(target=refuse, daemon=True).start()
        chain = hosts(fleet, port=server.getsockname()[1])
        if not is_multiplexed:
            chain["pve"] |= {"login": "forward"}
        with Connections(inventory(**chain), multiplexed=is_multiplexed) as connections:
            connections.preconnect("ct200")
            until(
                lambda: not [one for one in threading.enumerate() if one.name == "hostkit-preconnect"],
                "its end",
            )
            with pytest.raises(UnreachableError) as caught:
                connections.transport("ct200").run(["true"])
        server.shutdown(socket.SHUT_RDWR)
    assert caught.value.hop == "pve"
    assert len(tries) == 1


def test_what_can_be_no_argv_is_refused_before_it_is_asked(ct200: Transport) -> None:
    for argv in ([], ["-x"], ["a\0b"]):
        with pytest.raises(UsageError):
            ct200.run(argv)
    command_server(ct200)


def here(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, **both: Any
) -> contextlib.AbstractContextManager[Transport]:
    """Reach ct200 from pve itself."""
    monkeypatch.setenv("PATH", f"{fleet.server('outer').bin}:{os.environ['PATH']}")
    chain: dict[str, dict[str, object]] = {
        "pve": {"local": True, **both},
        "ct200": {"pct": 200, "via": "pve", "python": sys.executable, **both},
    }
    return reach("ct200", multiplexed=True, **chain)


def test_on_this_machine_too_it_sees_to_the_end_of_what_it_ran(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "pid"
    with here(fleet, monkeypatch) as transport:
        pid = command_server(transport)
        asking = threading.Thread(target=lambda: _lost(transport, told), daemon=True)
        asking.start()
        until(told.exists, "the beginning")
    asking.join(SOON)
    until(lambda: gone(pid), "its end")
    until(lambda: gone(int(told.read_text())), "the end of what it ran")


def test_a_container_that_hangs_costs_its_budget_once(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with here(fleet, monkeypatch, timeouts={"connect": "200ms", "auth": "200ms"}) as transport:
        hangs = tmp_path / "pct"
        hangs.write_text("#!/bin/sh\nexec sleep 30\n")
        hangs.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setattr(multiplex, "START_SECONDS", 0.0)
        began = time.monotonic()
        with pytest.raises(RemoteTimeoutError) as caught:
            transport.run(["true"], timeout=60)
    assert caught.value.hop == "ct200"
    assert time.monotonic() - began < SOON


def test_a_question_that_was_interrupted_amid_its_words_spoils_no_other(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = LocalPipe.send

    def interrupted(pipe: LocalPipe, data: bytes, until: float | None = None) -> None:
        send(pipe, data[:-100], until)
        monkeypatch.setattr(LocalPipe, "send", send)
        raise KeyboardInterrupt

    with here(fleet, monkeypatch) as transport:
        command_server(transport)
        monkeypatch.setattr(LocalPipe, "send", interrupted)
        with pytest.raises(KeyboardInterrupt):
            transport.run(["cat"], stdin=bytes(1000))
        assert transport.run(["echo", "still"], timeout=1).text() == "still\n"


@pytest.mark.parametrize("is_multiplexed", [True, False])
def test_whoever_ends_does_not_wait_for_a_host_that_is_being_connected_to(
    fleet: Fleet, is_multiplexed: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=50) as server:
        chain = {"ct129": fleet.host("outer", **PATIENT) | {"port": server.getsockname()[1]}}
        chain["ct200"] = {"pct": 200, "via": "ct129"}
        with Connections(inventory(**chain), multiplexed=is_multiplexed) as connections:
            transport = connections.transport("ct200")
            connections.preconnect("ct200")
            caller, _ = server.accept()  # and never greets it
            began = time.monotonic()
        assert time.monotonic() - began < SOON
        threading.Timer(0.2, caller.close).start()
        with pytest.raises(UnreachableError):
            transport.run(["true"])
        with pytest.raises(LostError):
            connections.transport("ct129")
        server.settimeout(0)
        with pytest.raises(BlockingIOError):  # nobody else has come
            server.accept()
