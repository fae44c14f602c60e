"""The `pct` stand-in keeps what matters of the real one's behaviour to its callers."""

from __future__ import annotations

import subprocess

import pytest

from hostkit.practice.root import Root

REJECTED = b"400 Parameter verification failed."


@pytest.fixture
def pct(served: Root):
    def run(
        *words: str | bytes, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        argv = [str(served.pve.bin / "pct"), *words]
        env = {"PATH": "/nowhere:/usr/bin:/bin", "FOO": "leaks", "HOSTKIT_PRACTICE": "mark"}
        return subprocess.run(argv, capture_output=True, env=env | (environment or {}), timeout=120)

    return run


def test_status_and_list_say_that_the_container_runs(pct) -> None:
    assert pct("status", "200").stdout == b"status: running\n"
    assert [line.split() for line in pct("list").stdout.splitlines()] == [
        [b"VMID", b"Status", b"Lock", b"Name"],
        [b"200", b"running", b"ct200"],
    ]


@pytest.mark.parametrize("code", [0, 1, 3, 126, 127, 255])
def test_exec_passes_the_exit_code_on(pct, code: int) -> None:
    assert pct("exec", "200", "--", "sh", "-c", f"exit {code}").returncode == code


def test_exec_passes_words_without_a_shell(pct) -> None:
    words = [b"a b", b"", b"$FOO", b"`id`", b"-n", b"--", b"\xff", b"x'y", b"new\nline"]
    assert pct("exec", "200", "--", "printf", "%s|", *words).stdout == b"".join(word + b"|" for word in words)


def test_exec_takes_options_before_the_dashes_for_its_own(pct) -> None:
    done = pct("exec", "200", "ls", "-la")
    assert (done.returncode, done.stderr.splitlines()[0]) == (255, REJECTED)
    assert pct("exec", "200", "echo", "hi").stdout == b"hi\n"


def test_exec_leaks_the_environment_and_resets_the_path(pct) -> None:
    lines = pct("exec", "200", "--", "env").stdout.splitlines()
    assert b"FOO=leaks" in lines
    assert b"PATH=/sbin:/bin:/usr/sbin:/usr/bin" in lines


def test_exec_without_the_environment_keeps_the_fleet_s_mark(pct) -> None:
    lines = pct("exec", "200", "--keep-env", "0", "--", "env").stdout.splitlines()
    assert b"FOO=leaks" not in lines
    assert {b"container=lxc", b"HOSTKIT_PRACTICE=mark"} <= set(lines)


def test_an_emptied_environment_keeps_the_mark_and_root_s_home_is_the_container_s(pct, served: Root) -> None:
    lines = pct("exec", "200", "--", "env", "-i", "A=1", "HOME=/root", "env").stdout.splitlines()
    assert set(lines) == {b"A=1", b"HOSTKIT_PRACTICE=mark", f"HOME={served.ct200.home}".encode()}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["exec", "20", "--", "true"], REJECTED),
        (["exec", "abc", "--", "true"], REJECTED),
        (["exec", "201", "--", "true"], b"Configuration file 'nodes/pve/lxc/201.conf' does not exist"),
        (["status", "201"], b"Configuration file 'nodes/pve/lxc/201.conf' does not exist"),
        (["exec", "200", "--"], b"missing command"),
        (["exec"], REJECTED),
        (["explode"], b"ERROR: unknown command 'pct explode'"),
        ([], b"ERROR: no command specified"),
    ],
)
def test_a_wrong_call_is_refused_with_255_and_a_reason(pct, words: list[str], said: bytes) -> None:
    done = pct(*words)
    assert (done.returncode, done.stdout, done.stderr.splitlines()[0]) == (255, b"", said)


@pytest.mark.parametrize(
    ("argv", "code"), [(["no-such-program"], 127), (["/etc/passwd"], 126), (["sh", "-c", "kill -9 $$"], 137)]
)
def test_what_cannot_run_or_is_killed_has_the_usual_codes(pct, argv: list[str], code: int) -> None:
    status = pct("exec", "200", "--", *argv).returncode
    assert (128 - status if status < 0 else status) == code


def test_a_stopped_container_runs_nothing(own: Root) -> None:
    own.running_flag.unlink()
    pct = str(own.pve.bin / "pct")
    assert subprocess.run([pct, "status", "200"], capture_output=True).stdout == b"status: stopped\n"
    done = subprocess.run([pct, "exec", "200", "--", "true"], capture_output=True)
    assert (done.returncode, done.stderr) == (255, b"container '200' not running!\n")
