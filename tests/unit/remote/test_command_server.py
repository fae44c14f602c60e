"""The command server by itself: what it is asked on one pipe, it answers on the other."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import hostkit

REMOTE = Path(hostkit.__file__).parent / "remote"


class Talk:
    """One command server, started as a host starts it."""

    def __init__(self) -> None:
        program = (
            f"import sys; sys.path.insert(0, {str(REMOTE)!r}); import command_server; command_server.run()"
        )
        argv = [sys.executable, "-I", "-S", "-B", "-c", program]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, head: dict[str, Any], given: bytes = b"") -> None:
        spelt = json.dumps(head | {"given": len(given)}).encode()
        assert self.process.stdin
        self.process.stdin.write(struct.pack("<I", len(spelt)) + spelt + given)
        self.process.stdin.flush()

    def frame(self) -> bytes:
        assert self.process.stdout
        return self.process.stdout.read(struct.unpack("<I", self.process.stdout.read(4))[0])

    def answer(self) -> tuple[int, dict[bytes, bytes], dict[str, Any]]:
        """Return the id, the output by its stream, and the end of the command that ends next."""
        output = {b"o": b"", b"e": b""}
        while True:
            body = self.frame()
            number, kind, payload = int.from_bytes(body[:4], "little"), body[4:5], body[5:]
            if kind == b"x":
                return number, output, json.loads(payload)
            if kind:
                output[kind] += payload


@pytest.fixture
def talk() -> Iterator[Talk]:
    talk = Talk()
    assert talk.frame() == bytes(4)  # it is there
    yield talk
    assert talk.process.stdin and talk.process.stdout
    talk.process.stdin.close()
    talk.process.stdout.close()
    assert talk.process.wait(30) == 0


def test_output_and_status_come_back_under_the_number_that_was_given(talk: Talk) -> None:
    talk.ask({"id": 7, "argv": ["sh", "-c", "cat; echo bad >&2; exit 3"]}, b"given")
    assert talk.answer() == (7, {b"o": b"given", b"e": b"bad\n"}, {"exit": 3, "late": False})


def test_what_cannot_be_started_has_the_status_that_a_shell_gives(talk: Talk, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("")
    for argv, status in (
        (["/no/such/program"], 127),
        ([f"{plain}/x"], 127),
        ([str(plain)], 126),
        (["a\0b"], 126),
    ):
        talk.ask({"id": 1, "argv": argv})
        _, output, end = talk.answer()
        assert (end["exit"], bool(output[b"e"])) == (status, True)


def test_a_command_is_ended_when_its_time_is_up_or_when_it_is_asked_for(talk: Talk) -> None:
    talk.ask({"id": 1, "argv": ["sleep", "600"], "timeout": 0.2})
    assert talk.answer()[2] == {"exit": 143, "late": True}
    talk.ask({"id": 2, "argv": ["sleep", "600"]})
    talk.ask({"end": 2})
    assert talk.answer()[2] == {"exit": 143, "late": False}


def sleeper(pid: Path) -> list[str]:
    return ["sh", "-c", f"echo $$ >{pid}.new; mv {pid}.new {pid}; exec sleep 600"]


def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.01)


def gone(pid: Path) -> bool:
    stat = Path(f"/proc/{pid.read_text().strip()}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_time_limit_counts_though_nobody_reads_what_others_print(talk: Talk, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    talk.ask({"id": 1, "argv": sleeper(pid), "timeout": 0.5})
    talk.ask({"id": 2, "argv": ["yes"]})
    until(pid.exists, "the beginning")
    until(lambda: gone(pid), "its end")
    talk.ask({"end": 2})


def test_a_time_limit_counts_though_two_that_print_find_nobody_there(tmp_path: Path) -> None:
    for turn in range(3):  # both must be ready at the same look
        talk, pid = Talk(), tmp_path / f"{turn}"
        assert talk.frame() == bytes(4)
        talk.ask({"id": 1, "argv": sleeper(pid), "timeout": 0.5})
        talk.ask({"id": 2, "argv": ["sh", "-c", "yes & yes >&2"]})
        until(pid.exists, "the beginning")
        assert talk.process.stdout and talk.process.stdin
        talk.process.stdout.close()
        assert talk.process.wait(30) == 0
        talk.process.stdin.close()
        until(partial(gone, pid), "its end")


def test_what_goes_on_printing_does_not_keep_the_end_of_what_left_it_behind(talk: Talk) -> None:
    talk.ask(
        {"id": 1, "argv": ["sh", "-c", "for i in 1 2 3; do yes & done; sleep 0.1; echo end >&2; exit 4"]}
    )
    size, told = 0, False
    while (body := talk.frame())[4:5] != b"x":
        told = told or body[4:5] == b"e"
        size += len(body) if told else 0
    assert json.loads(body[5:])["exit"] == 4
    assert size < 4 << 20  # a few pipes full, that is


def test_it_says_that_it_is_there_while_nothing_is_asked(talk: Talk) -> None:
    assert talk.frame() == b""


def test_a_question_that_makes_no_sense_ends_it(talk: Talk) -> None:
    assert talk.process.stdin
    talk.process.stdin.write(b"\x05\0\0\0what?")
    talk.process.stdin.flush()
    assert talk.process.wait(30) == 0
