"""Without a whole frame the answer is unknown; with one it is what the command left, whatever stands around it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostkit.errors import ProtocolError, UsageError
from hostkit.transport import frame
from hostkit.transport.frame import Frame, Reply, spell

NONCE = "0123456789abcdef0123456789abcdef"
FRAME = Frame(NONCE)
BEGIN = f"hostkit-frame {NONCE} begin\n".encode()


def end(code: int | str) -> bytes:
    return f"hostkit-frame {NONCE} end {code}\n".encode()


# bytes that like to look like markers
pieces = st.sampled_from(
    [BEGIN[:-1], end(0)[:-1], b"hostkit-frame ", NONCE.encode(), b"\n", b"end 0\n", b"\0\xff"]
)
noise = st.lists(st.one_of(st.binary(max_size=40), pieces), max_size=6).map(b"".join)
honest = noise.filter(
    lambda text: BEGIN not in text and b"hostkit-frame " + NONCE.encode() + b" end" not in text
)


@given(
    before=honest,
    out=honest,
    after=honest,
    err_before=honest,
    err=honest,
    err_after=honest,
    code=st.integers(0, 255),
)
def test_a_whole_frame_gives_back_exactly_what_the_command_wrote(
    before: bytes, out: bytes, after: bytes, err_before: bytes, err: bytes, err_after: bytes, code: int
) -> None:
    stdout = before + BEGIN + out + end(code) + after
    stderr = err_before + BEGIN + err + end(code) + err_after
    assert FRAME.parse(stdout, stderr) == Reply(code, out, err)
    assert FRAME.began(stdout)
    assert FRAME.ended(stdout)


@given(before=honest, out=honest, cut=st.integers(0, 10_000), err=noise)
def test_a_frame_that_is_cut_anywhere_is_unknown(before: bytes, out: bytes, cut: int, err: bytes) -> None:
    whole = before + BEGIN + out + end(0)
    with pytest.raises(ProtocolError):
        FRAME.parse(whole[: cut % len(whole)], err)


@given(out=noise, err=noise)
def test_any_bytes_without_a_frame_are_unknown(out: bytes, err: bytes) -> None:
    with pytest.raises(ProtocolError):
        Frame("f" * 32).parse(out, err)


@given(out=honest)
def test_another_commands_frame_is_not_ours(out: bytes) -> None:
    with pytest.raises(ProtocolError):
        Frame("f" * 32).parse(BEGIN + out + end(0), b"")


@pytest.mark.parametrize(
    ("status", "code", "timed_out"),
    [
        ("0", 0, False),
        ("124 timeout", 124, True),
        ("137", 137, False),
        ("265", 137, False),
        ("271 timeout", 143, True),
    ],
)
def test_an_end_marker_carries_the_status(status: str, code: int, timed_out: bool) -> None:
    assert FRAME.parse(BEGIN + end(status), b"") == Reply(code, b"", b"", timed_out)


@pytest.mark.parametrize("status", ["", "x", "-1", "12345", "0 whatever"])
def test_an_end_marker_that_is_garbled_is_unknown(status: str) -> None:
    with pytest.raises(ProtocolError):
        FRAME.parse(BEGIN + end(status), b"")


def test_the_error_says_what_came_instead_without_control_characters() -> None:
    with pytest.raises(ProtocolError, match=r"lxc-attach: failed red$"):
        FRAME.parse(b"", b"lxc-attach: failed \x1b[31mred\n")


def test_each_frame_has_a_nonce_of_its_own() -> None:
    assert Frame().nonce != Frame().nonce


@pytest.mark.parametrize("argv", [[], ["a\0b"], ["-x"], ["cat", "x" * 130_000]])
def test_an_argv_that_cannot_be_run_is_a_usage_error(argv: list[str]) -> None:
    with pytest.raises(UsageError):
        FRAME.argv(argv)


@given(words=st.lists(st.binary(max_size=30).filter(lambda word: b"\0" not in word), min_size=1, max_size=4))
def test_no_login_shell_sees_anything_to_expand(words: list[bytes]) -> None:
    spelt = spell([os.fsdecode(word) for word in words])
    assert not set(spelt) - set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:-\\")
    assert "\\\\" not in spelt


def test_the_program_itself_is_read_alike_by_every_shell() -> None:
    for word in FRAME.argv(["true"], timeout=5):
        for bad in ("'", "!", "\n", "\\\\", "\\'"):
            assert bad not in word


SHELLS = ["sh", "bash", "dash", "busybox sh", "ksh", "mksh", "zsh", "fish", "tcsh"]


def shell(name: str) -> list[str]:
    words = name.split()
    if not shutil.which(words[0]):
        pytest.skip(f"no {words[0]} on this machine")
    return words


@pytest.mark.parametrize("login", SHELLS)
@settings(max_examples=15, deadline=None)
@given(
    words=st.lists(
        st.one_of(
            st.binary(max_size=12),
            st.sampled_from([b"'", b"!!", b"\n", b"\\", b"$x", b"{a,b}", b"~", b"\xe2"]),
        ),
        max_size=4,
    ).map(lambda each: [word.replace(b"\0", b"") for word in each])
)
def test_any_argv_passes_any_login_shell(login: str, words: list[bytes]) -> None:
    argv = ["printf", "%s\\0", *map(os.fsdecode, words)]
    frame = Frame()
    done = subprocess.run([*shell(login), "-c", shlex.join(frame.argv(argv))], capture_output=True)
    assert frame.parse(done.stdout, done.stderr).stdout == b"".join(word + b"\0" for word in words or [b""])


INNER = ["dash", "bash", "busybox", "ksh"]


def run(
    inner: str, argv: list[str], timeout: float | None, without: bool = False, stdin: bytes = b""
) -> Reply:
    """Run the frame by another `sh`; `without`: as on a host that has no `timeout`."""
    made = Frame()
    if not shutil.which(inner):
        pytest.skip(f"no {inner} on this machine")
    words = [inner, *(["sh"] if inner == "busybox" else []), *made.argv(argv, timeout=timeout)[1:]]
    if without:
        words = [word.replace("timeout -k", "no-such-timeout -k") for word in words]
    done = subprocess.run(words, capture_output=True, input=stdin)
    return made.parse(done.stdout, done.stderr)


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("without", [False, True])
def test_the_frame_works_in_each_sh_with_and_without_timeout(inner: str, without: bool) -> None:
    for limit in (None, 20):
        assert run(inner, ["cat"], limit, without, b"given\0\xff") == Reply(0, b"given\0\xff", b"")
        assert run(inner, ["sh", "-c", "echo e >&2; exit 255"], limit, without) == Reply(255, b"", b"e\n")
        assert run(inner, ["sh", "-c", "kill -9 $$"], limit, without).exit == 137
        assert run(inner, ["no-such-program"], limit, without).exit == 127


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("without", [False, True])
def test_a_timeout_ends_the_command_and_its_children_and_says_so(
    inner: str, without: bool, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    for seconds in (1, 5, 25):  # the longer ones where the machine is too busy to begin in it
        began = time.monotonic()
        reply = run(inner, ["sh", "-c", f"sleep 600 & echo $! $$ > {pids}; wait"], seconds, without)
        assert time.monotonic() - began < seconds + 60
        assert reply.timed_out
        if pids.exists() and pids.read_text():
            break
    ends = time.monotonic() + 100
    for pid in pids.read_text().split():  # an orphan is gone once whoever inherits it has taken note
        while (state := state_of(pid)) is not None and state != "Z":
            assert time.monotonic() < ends, f"{pid} outlived its timeout"


def state_of(pid: str) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


@pytest.mark.parametrize("inner", INNER)
def test_without_timeout_and_setsid_the_command_itself_is_ended(
    inner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        frame, "_WATCHDOG_SPELT", frame._octal(frame._WATCHDOG.replace("setsid", "no-setsid").encode())
    )
    pid = tmp_path / "pid"
    for seconds in (1, 5, 25):
        assert run(inner, ["sh", "-c", f"echo $$ > {pid}; exec sleep 600"], seconds, without=True).timed_out
        if pid.exists() and pid.read_text():
            break
    assert state_of(pid.read_text().strip()) in (None, "Z")
