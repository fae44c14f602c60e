"""`hostkit practice` as a user types it: how it refuses, how it ends, and (slow) the whole tour."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostkit.practice import lifecycle, processes
from hostkit.practice.root import Root
from hostkit.program import parse, split
from hostkit.tasks.catalogue import commands
from hostkit.tasks.practice import commands_to_try

HOSTKIT = [sys.executable, "-c", "from hostkit.cli import main; main()", "practice"]


@pytest.fixture
def environment(fleets: Path) -> dict[str, str]:
    return os.environ | {"TMPDIR": str(fleets), "COLUMNS": "100"}


def practice(
    environment: dict[str, str], *flags: str, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HOSTKIT, *flags],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment,
        timeout=timeout,
    )


def root_of(environment: dict[str, str], command: subprocess.Popen[str]) -> Root | None:
    """Return the root that this command made, once it has recorded itself in it."""
    for folder in Path(environment["TMPDIR"], f"hostkit-practice-{os.getuid()}").iterdir():
        root = Root(folder)
        owner = lifecycle.owner(root)
        if owner is not None and owner.pid == command.pid:
            return root
    return None


def test_flags_that_say_opposite_things_are_a_usage_error(environment: dict[str, str]) -> None:
    assert practice(environment, "--keep", "--down").returncode == 64
    assert practice(environment, "--no-tour").returncode == 64


@pytest.mark.parametrize("found", ["ours", "another", "none"])
def test_what_can_be_typed_calls_this_hostkit_also_where_its_name_does_not(
    found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ours", "another", "none"):
        (tmp_path / name).mkdir()
        if name != "none":
            (tmp_path / name / "hostkit").write_text("#!/bin/sh\n")
            (tmp_path / name / "hostkit").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / found))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "ours" / "python3"))
    words = "hostkit" if found == "ours" else str(tmp_path / "ours" / "hostkit")
    export, *lines = [line for line, _ in commands_to_try(Root(tmp_path))]
    assert export == f"export HOSTKIT_INVENTORY={Root(tmp_path).inventory}"
    assert lines[0] == f"{words} train-status"
    assert len(lines) == 8
    for line in lines:
        argv = shlex.split(line)
        if argv[0] == words:
            name, rest = split(argv[1:], commands)
            assert name and parse(commands[name], rest)


def test_another_inventory_is_never_taken_for_a_fleet_to_end(
    environment: dict[str, str], tmp_path: Path
) -> None:
    stranger = tmp_path / "inventory.yaml"
    stranger.write_text("hostkit: 1\n")
    done = practice(environment, "--down", "--inventory", str(stranger))
    assert done.returncode == 64
    assert stranger.exists()


def test_a_named_fleet_is_ended_and_no_other(environment: dict[str, str], served: Root, own: Root) -> None:
    everyone = processes.marked(own)
    done = practice(environment, "--down", "--json", "--inventory", str(own.inventory))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["ended"], told["busy"]) == ([{"root": str(own.path), "processes": 2}], [])
    assert [who for who in everyone if processes.alive(who)] == []
    assert len(processes.marked(served)) >= 2


def test_down_leaves_a_fleet_alone_whose_tour_still_runs(environment: dict[str, str], own: Root) -> None:
    done = practice(environment, "--down", "--json")  # the owner of `own` is this very test
    assert done.returncode == 75, done.stderr
    assert str(own.path) in json.loads(done.stdout)["busy"]
    assert len(processes.marked(own)) == 2


@pytest.fixture
def elsewhere(environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """An environment with a folder of fleets of its own, in which there is none."""
    with tempfile.TemporaryDirectory(prefix="hkp") as folder:
        yield environment | {"TMPDIR": folder}


def test_down_says_so_when_no_fleet_is_up(elsewhere: dict[str, str], served: Root) -> None:
    assert practice(elsewhere, "--down").stdout == "no practice fleet is up\n"
    assert len(processes.marked(served)) >= 2


def test_down_ends_every_fleet_that_was_left(elsewhere: dict[str, str], served: Root) -> None:
    code = (
        "from hostkit.practice import lifecycle, furnish\n"
        "for _ in range(2): lifecycle.furnish_and_serve(lifecycle.begin(), furnish.Settings())"
    )
    subprocess.run([sys.executable, "-c", code], env=elsewhere, check=True, timeout=120)
    done = practice(elsewhere, "--down")
    assert (done.returncode, done.stdout.count("ended 2 processes and removed")) == (0, 2), done.stderr
    assert len(processes.marked(served)) >= 2


def test_a_tmpdir_that_ssh_could_not_name_is_told_and_no_other_is_taken(
    environment: dict[str, str], tmp_path: Path
) -> None:
    odd = tmp_path / "a b"
    odd.mkdir()
    done = practice(environment | {"TMPDIR": str(odd)}, "--down")
    assert (done.returncode, "TMPDIR" in done.stderr) == (78, True)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGHUP, 130)]
)
def test_an_interrupted_tour_takes_its_fleet_down(
    environment: dict[str, str], number: signal.Signals, code: int
) -> None:
    with subprocess.Popen(
        HOSTKIT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    ) as command:
        root = lifecycle.until(lambda: root_of(environment, command), 100)
        assert root is not None
        making = lifecycle.until(lambda: len(processes.marked(root)) >= 3 or None, 100)
        assert making, "servers and the making of the target"
        everyone = processes.marked(root)
        command.send_signal(number)
        said, _ = command.communicate(timeout=100)
        assert command.returncode == code, said
    assert not root.path.exists()
    assert [who for who in everyone if processes.alive(who)] == []


def test_a_tour_that_is_not_done_in_its_time_takes_its_fleet_down(elsewhere: dict[str, str]) -> None:
    done = practice(elsewhere, "--timeout", "4s", timeout=120)
    assert (done.returncode, "not done in 4 s" in done.stderr) == (75, True), done.stderr
    assert list(Path(elsewhere["TMPDIR"], f"hostkit-practice-{os.getuid()}").iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_whole_tour_works_and_leaves_nothing(environment: dict[str, str]) -> None:
    done = practice(environment, "--json", timeout=800)
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout)
    assert told["schema"] == "hostkit.practice/1"
    assert told["passed"] is True
    assert [check["passed"] for check in told["checks"]] == [True] * 6
    root = Root(Path(told["root"]))
    assert not root.path.exists()
    assert processes.marked(root) == []
