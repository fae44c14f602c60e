"""Checkpoints from ct200 to ct129, pulled through pve and `pct exec`: whole, resumed, the source untouched."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.fleet import Fleet
from tests.fleet.processes import argv, until, within
from tests.fleet.saves import inside, listing, save, sha256, torch_file
from tests.fleet.training import Training

pytestmark = pytest.mark.fleet

STAGED = "/root/eval/staged"
BIG = 96  # MiB: long enough on its way to be caught there


def hostkit_json(fleet: Fleet, *words: str, inventory: Path | None = None) -> tuple[int, dict[str, Any]]:
    flags = ["--inventory", str(inventory)] if inventory else []
    done = fleet.hostkit(*words, "--json", *flags)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return torch_file(tmp_path_factory.mktemp("small") / "checkpoint.pt", step=40)


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return torch_file(tmp_path_factory.mktemp("big") / "checkpoint.pt", megabytes=BIG, step=40)


@pytest.mark.report("c1", "f11")
@pytest.mark.parametrize("host", ["ct200", "ct200-forward"])
def test_the_newest_checkpoint_arrives_whole_and_nothing_of_the_run_has_changed(
    fleet: Fleet, small: Path, host: str
) -> None:
    training = Training.begin(fleet, "--first-step", "10000")
    for step in (999, 4000, 9000, 10000):
        save(fleet, small, step)
    training.signal(signal.SIGSTOP)
    before = listing(fleet.root("ct200") / "workspace")
    inventory = fleet.inventory_with(lambda data: data["runs"]["drafter"].update(host=host))
    code, staged = hostkit_json(fleet, "stage", inventory=inventory)
    assert code == 0, json.dumps(staged)
    assert staged["step"] == 10000
    arrived = inside(fleet, "ct129", staged["path"])
    assert staged["path"].startswith(f"{STAGED}/")
    assert stat.S_ISREG(arrived.lstat().st_mode)
    assert arrived.stat().st_uid == 0
    assert sha256(arrived) == sha256(small) == staged["sha256"]
    assert listing(fleet.root("ct200") / "workspace") == before
    training.signal(signal.SIGCONT)
    training.go_on()


@pytest.mark.report("d9")
def test_a_folder_with_an_odd_name_is_staged_and_nothing_in_the_name_is_run(
    fleet: Fleet, small: Path
) -> None:
    odd = "my run (v2) $HOME `touch canary` 'q' \"d\" ü ; touch canary"
    save(fleet, small, 40, root=f"/workspace/{odd}")
    saves = {"root": "/workspace", "pattern": odd + "/step_{step}/checkpoint.pt", "every": 20}
    inventory = fleet.inventory_with(lambda data: data["runs"]["drafter"].update(checkpoints=saves))
    code, staged = hostkit_json(fleet, "stage", inventory=inventory)
    assert code == 0, json.dumps(staged)
    assert sha256(inside(fleet, "ct129", staged["path"])) == sha256(small)
    for host in ("ct129", "pve", "ct200"):
        found = fleet.out(host, "find", "/root", "/workspace", "/tmp", "/var/tmp", "-xdev", "-name", "canary")
        assert found == ""


@pytest.mark.report("c11")
def test_a_cut_newest_checkpoint_is_named_and_the_one_before_is_staged(fleet: Fleet, small: Path) -> None:
    save(fleet, small, 40)
    cut = save(fleet, small, 60)
    os.truncate(cut, small.stat().st_size * 6 // 10)
    code, listed = hostkit_json(fleet, "checkpoints")
    assert code == 0
    assert listed["chosen"]["step"] == 40
    (newest,) = [one for one in listed["checkpoints"] if one["step"] == 60]
    assert "incomplete" in newest["why"]
    assert hostkit_json(fleet, "stage")[1]["step"] == 40


@pytest.mark.report("c11")
def test_a_newest_checkpoint_that_only_a_closer_look_finds_torn_is_named_and_the_one_before_is_staged(
    fleet: Fleet, small: Path
) -> None:
    save(fleet, small, 40)
    torn = save(fleet, small, 60)
    with torn.open("r+b") as file:  # head and directory are there, what lies between never reached the disk
        file.seek(64)
        file.write(bytes(512))
    code, listed = hostkit_json(fleet, "checkpoints")
    assert (code, listed["chosen"]["step"]) == (0, 40)
    code, planned = hostkit_json(fleet, "stage", "--dry-run")
    assert (code, planned["stage"]["step"]) == (0, 40)
    assert hostkit_json(fleet, "stage")[1]["step"] == 40
    code, refused = hostkit_json(fleet, "stage", "--step", "60")
    assert code == 65
    assert "not complete" in refused["what"]


def test_a_second_stage_finds_it_there_and_copies_nothing(fleet: Fleet, small: Path) -> None:
    save(fleet, small, 40)
    _, first = hostkit_json(fleet, "stage")
    inode = inside(fleet, "ct129", first["path"]).stat().st_ino
    code, second = hostkit_json(fleet, "stage")
    assert (code, second["reused"], second["path"]) == (0, True, first["path"])
    assert inside(fleet, "ct129", second["path"]).stat().st_ino == inode


def test_a_dry_run_touches_neither_side(fleet: Fleet, small: Path) -> None:
    save(fleet, small, 40)
    sides = [fleet.root("ct200") / "workspace", fleet.root("ct129") / "root"]
    (sides[1] / "eval").mkdir()
    # the bound-in interpreter below /root is this machine's own, and others use it
    own = [sides[0], sides[1] / "eval", sides[1] / ".ssh"]
    before = [listing(side) for side in own]
    code, plan = hostkit_json(fleet, "stage", "--dry-run")
    assert (code, plan["stage"]["step"]) == (0, 40)
    assert [listing(side) for side in own] == before


def test_a_full_disk_is_refused_before_a_byte_moves(fleet: Fleet, big: Path) -> None:
    save(fleet, big, 40)
    fleet.fill_disk("ct129", "/root/eval", free=BIG << 19)
    code, error = hostkit_json(fleet, "stage")
    assert code == 73, error
    assert "ct129" in error["where"]
    assert not list(inside(fleet, "ct129", "/root/eval").rglob("checkpoint.pt"))


@pytest.mark.report("d3")
@pytest.mark.parametrize("host", ["ct200", "ct129"])
def test_without_rsync_on_a_host_it_is_said_and_the_file_streamed(
    fleet: Fleet, small: Path, host: str
) -> None:
    save(fleet, small, 40)
    fleet.sh(host, ["rm", "/usr/bin/rsync"])
    _, plan = hostkit_json(fleet, "stage", "--dry-run")
    assert (plan["stage"]["carried"], plan["stage"]["carried_why"]) == ("stream", f"rsync missing on {host}")
    code, staged = hostkit_json(fleet, "stage")
    assert code == 0, staged
    assert sha256(inside(fleet, "ct129", staged["path"])) == sha256(small)


# --- cut on its way


def copies(fleet: Fleet, host: str) -> list[int]:
    """Return the rsync processes of a host, by their pids here."""
    return [pid for pid in within(fleet.init_of(host)) if Path("".join(argv(pid)[:1])).name == "rsync"]


def arrived(fleet: Fleet) -> int:
    """Return the bytes that have come to ct129 so far."""
    folder = inside(fleet, "ct129", f"{STAGED}/.staging")
    return sum(file.stat().st_size for file in folder.rglob("*checkpoint.pt*") if file.is_file())


@pytest.fixture
def under_way(fleet: Fleet, big: Path) -> Iterator[subprocess.Popen[str]]:
    """A stage command whose transfer was stopped (SIGSTOP) with a part of the file there."""
    save(fleet, big, 40)
    command = subprocess.Popen(
        fleet.hostkit_argv("stage", "--json", "--rate", "60MB"),
        env=fleet.environment,
        cwd=fleet.home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: arrived(fleet) > 1 << 20, "a part of the file", seconds=30, pause=0.002)
    for pid in copies(fleet, "ct129"):
        os.kill(pid, signal.SIGSTOP)
    assert arrived(fleet) < BIG << 20, "the transfer was too quick to be caught"
    yield command
    command.kill()
    command.communicate()


@pytest.mark.report("g9")
def test_a_killed_command_leaves_one_writer_and_the_next_one_completes(
    fleet: Fleet, big: Path, under_way: subprocess.Popen[str]
) -> None:
    under_way.kill()
    under_way.wait()
    second = subprocess.Popen(
        fleet.hostkit_argv("stage", "--json"),
        env=fleet.environment,
        cwd=fleet.home,
        stdout=subprocess.PIPE,
        text=True,
    )
    time.sleep(1.5)  # it must not have begun a second copy, nor given up, within this time
    assert second.poll() is None
    assert len({tuple(argv(pid)) for pid in copies(fleet, "ct129")}) <= 2  # rsync and its other half
    for pid in copies(fleet, "ct129"):
        os.kill(pid, signal.SIGCONT)
    staged = json.loads(second.communicate(timeout=90)[0])
    assert sha256(inside(fleet, "ct129", staged["path"])) == sha256(big)
    until(lambda: not copies(fleet, "ct129") and not copies(fleet, "ct200"), "the end of every rsync")


def test_a_dead_transfer_goes_on_where_it_was_cut(
    fleet: Fleet, big: Path, under_way: subprocess.Popen[str]
) -> None:
    for pid in copies(fleet, "ct129"):
        os.kill(pid, signal.SIGKILL)
    code = under_way.wait(60)
    assert code != 0
    part = arrived(fleet)
    assert part > 1 << 20
    code, staged = hostkit_json(fleet, "stage")
    assert code == 0, json.dumps(staged)
    assert staged["resumed_at"] == part
    assert sha256(inside(fleet, "ct129", staged["path"])) == sha256(big)
    assert arrived(fleet) == 0


def test_a_network_that_goes_away_in_the_middle_ends_it_and_the_next_one_completes(
    fleet: Fleet, big: Path, under_way: subprocess.Popen[str]
) -> None:
    fleet.cut(inner=True)
    for pid in copies(fleet, "ct129"):
        os.kill(pid, signal.SIGCONT)
    output, _ = under_way.communicate(timeout=90)
    assert under_way.returncode in (69, 73), output
    fleet.mend(inner=True)
    code, staged = hostkit_json(fleet, "stage")
    assert code == 0, json.dumps(staged)
    assert sha256(inside(fleet, "ct129", staged["path"])) == sha256(big)


@pytest.mark.report("c17", "d5")
def test_a_checkpoint_that_is_pruned_on_its_way_is_not_staged(
    fleet: Fleet, big: Path, under_way: subprocess.Popen[str]
) -> None:
    inside(fleet, "ct200", "/workspace/checkpoints/step_40/checkpoint.pt").unlink()
    for pid in copies(fleet, "ct129"):
        os.kill(pid, signal.SIGCONT)
    output, _ = under_way.communicate(timeout=90)
    assert under_way.returncode == 65, output
    assert "vanished" in output
    final = [
        path for path in inside(fleet, "ct129", STAGED).rglob("checkpoint.pt") if ".staging" not in path.parts
    ]
    assert final == []
