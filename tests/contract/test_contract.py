"""What every way to a host promises, whatever stands between."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hostkit.errors import ProtocolError, RemoteTimeoutError
from hostkit.transport.base import Transport

ECHO = ["sh", "-c", 'for a; do printf "%s\\0" "$a"; done', "sh"]
AWKWARD = [
    "two words",
    "a b'c\"d$e\\f;g|h\n*",
    "",
    "-n",
    "--",
    "$HOME `id` $(id)",
    "!! !$ !",
    "~",
    "*",
    "[a-z]?",
    "{a,b}",
    "back\\slash \\\\ \\' end\\",
    "tab\there",
    "\n",
    "trailing newline\n\n",
    "ü – 統一",
    os.fsdecode(b"\xff\xfe\x80 bytes"),
    os.fsdecode(bytes(range(1, 256))),
    "%s%n%%",
    "=ls",
    "#comment",
    "a=b",
    "'",
    '"',
    "\r\x1b[31m",
]


@pytest.mark.report("f5", "e7")
def test_an_argv_arrives_word_for_word(transport: Transport) -> None:
    done = transport.run([*ECHO, *AWKWARD], timeout=60)
    assert done.stderr == b""
    assert done.exit == 0
    assert done.stdout.split(b"\0")[:-1] == [os.fsencode(word) for word in AWKWARD]
    assert done.argv == (*ECHO, *AWKWARD)


def test_megabytes_pass_on_stdin_and_stdout_at_once(transport: Transport) -> None:
    data = os.urandom(1 << 16) * 64 + b"end without newline"
    done = transport.run(["cat"], stdin=data, timeout=60)
    assert done.exit == 0
    assert done.stdout == data


def test_a_command_that_wants_no_stdin_may_be_given_megabytes(transport: Transport) -> None:
    assert transport.run(["true"], stdin=b"x" * 3_000_000, timeout=60).exit == 0


@pytest.mark.report("e13")
def test_stderr_is_kept_apart_and_may_be_large(transport: Transport) -> None:
    script = "head -c 2000000 /dev/zero >&2; echo out; head -c 2000000 /dev/zero"
    done = transport.run(["sh", "-c", script], timeout=60)
    assert done.stdout == b"out\n" + bytes(2_000_000)
    assert done.stderr == bytes(2_000_000)


@pytest.mark.parametrize("stream", ["1", "2"])
def test_output_without_end_is_cut_off_at_a_limit_and_its_command_and_frame_end(
    transport: Transport, tmp_path: Path, stream: str
) -> None:
    pids = tmp_path / "pids"
    flood = ["sh", "-c", f"echo $$ $PPID >{pids}; exec yes xxx >&{stream}"]
    with pytest.raises(ProtocolError, match="exceeded 4 MiB"):
        transport.run(
            flood, max_bytes=4 << 20, timeout=3
        )  # an ssh on the way drains stderr for nobody until then
    # a command server is the parent of the next command too, and stays for it
    server = transport.run(["sh", "-c", "echo $PPID"]).stdout.decode().strip()
    for pid in set(pids.read_text().split()) - {server}:
        assert not alive(int(pid)), f"{pid} outlived its reply"


def test_a_command_that_prints_on_and_on_is_ended_at_its_timeout(transport: Transport) -> None:
    began = time.monotonic()
    with pytest.raises(RemoteTimeoutError):
        transport.run(["sh", "-c", "while :; do echo xxx; sleep 0.01; done"], timeout=1)
    assert time.monotonic() - began < 60


def test_no_output_is_empty_output(transport: Transport) -> None:
    done = transport.run(["true"])
    assert (done.exit, done.stdout, done.stderr) == (0, b"", b"")


def test_an_exit_status_comes_back_as_it_was(transport: Transport) -> None:
    for number, code in enumerate((0, 1, 126, 127, 137, 255)):
        timeout = (None, 60)[number % 2]
        assert transport.run(["sh", "-c", f"exit {code}"], timeout=timeout).exit == code


@pytest.mark.parametrize("timeout", [None, 60])
def test_death_by_a_signal_is_128_and_its_number(transport: Transport, timeout: float | None) -> None:
    for signal, code in (("KILL", 137), ("TERM", 143), ("SEGV", 139)):
        done = transport.run(["sh", "-c", f"ulimit -c 0; echo before; kill -{signal} $$"], timeout=timeout)
        assert (done.exit, done.stdout) == (code, b"before\n")


def test_a_program_that_is_not_there_is_127(transport: Transport) -> None:
    assert transport.run(["no-such-program-anywhere"]).exit == 127
    assert transport.run(["no-such-program-anywhere"], timeout=60).exit == 127


def test_a_shell_builtin_is_no_program(transport: Transport) -> None:
    assert transport.run(["exit", "3"]).exit == 127


def test_stdin_that_was_not_given_is_empty_and_not_a_terminal(transport: Transport) -> None:
    done = transport.run(["sh", "-c", "cat; test -t 0 || echo none"], timeout=60)
    assert done.stdout == b"none\n"


def test_a_command_that_ran_too_long_is_dead_on_the_far_side(transport: Transport, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    hop = overrun(transport, f"sleep 777 & echo $! $$ > {pids}; wait", pids)
    assert hop == transport.host
    for pid in pids.read_text().split():
        assert not alive(int(pid)), f"{pid} outlived its timeout"


@pytest.mark.parametrize("transport", ["local", "login there, pct"], indirect=True)
def test_a_command_that_ignores_sigterm_is_killed(transport: Transport, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    overrun(transport, f"trap '' TERM; echo $$ > {pid}; while :; do sleep 1; done", pid)
    assert not alive(int(pid.read_text()))


def overrun(transport: Transport, script: str, begun: Path) -> str | None:
    """Run a script that never ends until its timeout; a longer one where the machine is too busy to begin in it."""
    for seconds in (1, 5, 25):
        started = time.monotonic()
        with pytest.raises(RemoteTimeoutError) as caught:
            transport.run(["sh", "-c", script], timeout=seconds)
        assert time.monotonic() - started < seconds + 60
        if begun.exists() and begun.read_text():
            return caught.value.hop
    raise AssertionError("the command never began")


@pytest.mark.report("e19")
def test_a_grandchild_that_keeps_stdout_does_not_keep_us(transport: Transport, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    started = time.monotonic()
    done = transport.run(["sh", "-c", f"sleep 777 & echo $! > {pid}; echo launched"])
    took = time.monotonic() - started
    os.kill(int(pid.read_text()), 9)
    assert done.stdout == b"launched\n"
    assert took < 60


def test_output_that_looks_like_a_frame_changes_nothing(transport: Transport) -> None:
    text = b"hostkit-frame 0123 begin\nhostkit-frame 0123 end 0\nhostkit-frame "
    done = transport.run(["sh", "-c", "cat; exit 7"], stdin=text)
    assert (done.exit, done.stdout) == (7, text)


def test_no_process_shows_a_whole_marker(transport: Transport) -> None:
    done = transport.run(
        ["sh", "-c", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; exit 5"], timeout=60
    )
    assert done.exit == 5


def test_the_locale_is_stated_and_the_path_has_the_usual_places(transport: Transport) -> None:
    done = transport.run(["sh", "-c", "echo $LC_ALL; echo $PATH"])
    locale, path = done.text().splitlines()
    assert locale == "C.UTF-8"
    assert {"/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"} <= set(path.split(":"))


def alive(pid: int) -> bool:
    """A zombie is dead; wait for a signal, or a closed pipe, to do its work."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
        if state in "ZX":
            return False
        time.sleep(0.02)
    return True
