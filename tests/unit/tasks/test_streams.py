"""Whoever stops listening to a command's progress does not end the command, nor change what it answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

CODE = """
import pathlib, sys
from hostkit.program import run
from hostkit.tasks.command import Outcome, command

@command("work", acts=True)
def work(session):
    for _ in range(3):
        session.say("at it")
    print("a library's own word", file=sys.stderr)
    pathlib.Path(sys.argv[-1]).touch()
    session.say("done")
    return Outcome({"schema": "x/1"}, exit=5)

sys.exit(run(["work", "--json"], {"work": work}))
"""


@pytest.fixture(params=["a reader that has gone", "a full disk", "a terminal that has gone"])
def unheard(request: pytest.FixtureRequest) -> Iterator[int]:
    """Return a descriptor that takes nothing."""
    if request.param == "a full disk":
        other, descriptor = -1, os.open("/dev/full", os.O_WRONLY)
    elif request.param == "a reader that has gone":
        other, descriptor = os.pipe()
    else:
        other, descriptor = os.openpty()
    if other >= 0:
        os.close(other)
    yield descriptor
    os.close(descriptor)


def test_a_command_that_nobody_hears_any_more_does_its_work_and_answers(unheard: int, tmp_path: Path) -> None:
    made = tmp_path / "made"
    words = [sys.executable, "-c", CODE, str(made)]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=unheard, timeout=60, check=False)
    assert made.exists()
    assert (done.returncode, json.loads(done.stdout)) == (5, {"schema": "x/1"})
