"""Pushed from ct200, relayed by the laptop, in and out of containers of all kinds: whole, resumed, nothing left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.fleet import Fleet
from tests.fleet.processes import until
from tests.fleet.roads import SHIFT, by_forward, close_road, everybody, open_road, unprivileged
from tests.fleet.saves import inside, listing, save, sha256
from tests.fleet.test_staging import arrived, hostkit_json

pytestmark = pytest.mark.fleet

SLOW = "6MB"  # a second: so that it is caught on its way


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of which an evaluation needs a sixth."""
    import torch

    path = tmp_path_factory.mktemp("trained") / "checkpoint.pt"
    weights = torch.randint(0, 255, (24 << 20,), dtype=torch.uint8)
    torch.save({"optimizer": {0: weights.repeat(5)}, "drafter": {"weight": weights}, "step": 40}, path)
    return path


@pytest.fixture
def pushing(fleet: Fleet) -> Path:
    """ct200 has a key to ct129, and that has none to pve; returns an inventory."""
    open_road(fleet)
    close_road(fleet)
    return by_forward(fleet)


def same_drafter(staged: Path, source: Path) -> None:
    import torch

    here, there = torch.load(staged, weights_only=True), torch.load(source, weights_only=True)
    assert torch.equal(here["drafter"]["weight"], there["drafter"]["weight"])


@pytest.mark.report("f11")
@pytest.mark.parametrize("method", ["weights", "full"])
def test_the_source_pushes_where_nothing_can_be_pulled_and_not_a_file_of_it_changes(
    fleet: Fleet, pushing: Path, trained: Path, method: str
) -> None:
    save(fleet, trained, 40)
    home = fleet.root("ct200")
    places = [home / one for one in ("workspace", "root/.ssh", "tmp", "var/tmp", "home", "run")]
    before = [listing(one) for one in places]
    flags = ["--full"] if method == "full" else []
    code, plan = hostkit_json(fleet, "stage", "--dry-run", *flags, inventory=pushing)
    assert code == 0, plan
    assert (plan["stage"]["by"], plan["stage"]["route"]) == ("push", ["ct200-forward", "ct129"])
    assert "ct129 does not reach ct200-forward" in plan["stage"]["by_why"]
    code, staged = hostkit_json(fleet, "stage", *flags, inventory=pushing)
    assert code == 0, staged
    assert (staged["by"], staged["method"]) == ("push", method)
    arrived = inside(fleet, "ct129", staged["path"])
    if method == "full":
        assert staged["manifest"]["carried"] == "rsync"
        assert sha256(arrived) == sha256(trained)
    else:
        same_drafter(arrived, trained)
    assert arrived.stat().st_uid == 0
    assert [listing(one) for one in places] == before


def begun(fleet: Fleet, *words: str, inventory: Path) -> subprocess.Popen[str]:
    """A stage command that runs slowly, with a part of the file there."""
    command = subprocess.Popen(
        fleet.hostkit_argv("stage", "--json", "--rate", SLOW, "--inventory", str(inventory), *words),
        env=fleet.environment,
        cwd=fleet.home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(
        lambda: arrived(fleet) > 4 << 20 or command.poll() is not None, "a part of it", seconds=90, pause=0.02
    )
    assert command.poll() is None, command.communicate()
    return command


@pytest.mark.report("g9")
@pytest.mark.parametrize(
    "words", [["--full"], [], ["--by", "relay", "--full"], ["--by", "relay"]], ids=" ".join
)
def test_a_killed_command_leaves_no_process_anywhere_and_the_next_one_goes_on(
    fleet: Fleet, pushing: Path, trained: Path, words: list[str]
) -> None:
    save(fleet, trained, 40)
    before = everybody(fleet)
    command = begun(fleet, *words, inventory=pushing)
    assert {host for host, _ in everybody(fleet) - before} >= {"ct129", "pve", "ct200"}
    os.kill(command.pid, signal.SIGKILL)
    command.communicate()
    until(lambda: everybody(fleet) <= before, "the end of all that it had started", seconds=30, pause=0.1)
    part = arrived(fleet)
    code, staged = hostkit_json(fleet, "stage", *words, inventory=pushing)
    assert code == 0, staged
    assert staged["by"] == ("relay" if "relay" in words else "push")
    assert 0 < part == staged["resumed_at"]
    there = inside(fleet, "ct129", staged["path"])
    if "--full" in words:
        assert sha256(there) == sha256(trained)
    else:
        same_drafter(there, trained)


@pytest.mark.parametrize("words", [["--full"], ["--by", "relay"]], ids=" ".join)
def test_a_network_that_is_cut_in_the_middle_ends_it_and_the_next_one_goes_on(
    fleet: Fleet, pushing: Path, trained: Path, words: list[str]
) -> None:
    save(fleet, trained, 40)
    command = begun(fleet, *words, inventory=pushing)
    fleet.cut(inner=True)
    output, _ = command.communicate(timeout=120)
    assert command.returncode == 69, output
    assert json.loads(output)["hop"] in ("ct129", "pve-forward", "ct200-forward"), output
    fleet.mend(inner=True)
    until(
        lambda: (
            hostkit_json(fleet, "stage", "--dry-run", *words, inventory=pushing)[1]["stage"]["holder"] is None
        ),
        "the end of the receiver",
        seconds=60,
    )
    code, staged = hostkit_json(fleet, "stage", *words, inventory=pushing)
    assert code == 0, staged
    assert staged["resumed_at"] > 0


@pytest.mark.report("d7")
@pytest.mark.parametrize("words", [["--full"], ["--by", "relay", "--full"]], ids=" ".join)
def test_a_disk_that_fills_up_in_the_middle_is_said_and_what_came_is_gone_on_with(
    fleet: Fleet, pushing: Path, trained: Path, words: list[str]
) -> None:
    save(fleet, trained, 40)
    fleet.fill_disk("ct129", "/root/eval", free=trained.stat().st_size + (32 << 20))
    command = begun(fleet, *words, inventory=pushing)
    fleet.sh("ct129", ["sh", "-c", "cat /dev/zero >/root/eval/more"], check=False)
    output, _ = command.communicate(timeout=120)
    assert command.returncode == 73, output
    assert "disk full" in output or "No space left" in output
    fleet.sh("ct129", ["rm", "/root/eval/more"])
    code, staged = hostkit_json(fleet, "stage", *words, inventory=pushing)
    assert code == 0, staged
    assert staged["resumed_at"] > 0
    assert sha256(inside(fleet, "ct129", staged["path"])) == sha256(trained)


def test_neither_reaches_the_other_and_the_laptop_relays_only_when_asked(fleet: Fleet, trained: Path) -> None:
    save(fleet, trained, 40)
    close_road(fleet)
    inventory = by_forward(fleet)
    code, error = hostkit_json(fleet, "stage", inventory=inventory)
    assert code == 69, error
    assert "--by relay" in error["hint"]
    code, staged = hostkit_json(fleet, "stage", "--by", "relay", inventory=inventory)
    assert code == 0, staged
    assert staged["route"] == ["ct200-forward", "pve-forward", "ct129", "this machine", "ct129"]
    same_drafter(inside(fleet, "ct129", staged["path"]), trained)


def test_from_one_container_to_another_through_two_hosts(fleet: Fleet, trained: Path) -> None:
    """ct201 has no network at all: the push goes by ct129 and pve, and in by `pct exec` there."""
    save(fleet, trained, 40)
    open_road(fleet)
    fleet.second_container()
    inventory = by_forward(fleet, host="ct201")
    code, staged = hostkit_json(fleet, "stage", inventory=inventory)
    assert code == 0, staged
    assert (staged["by"], staged["route"]) == ("push", ["ct200-forward", "ct129", "pve", "ct201"])
    same_drafter(inside(fleet, "ct201", staged["path"]), trained)


@pytest.mark.parametrize("words", [["--full"], []], ids=["full", "weights"])
def test_a_container_pulls_from_an_ssh_host_with_keys_of_its_own(
    fleet: Fleet, trained: Path, words: list[str]
) -> None:
    save(fleet, trained, 40, host="ct129")
    open_road(fleet)

    def turn_round(data: dict[str, Any]) -> None:
        data["runs"]["drafter"].update(host="ct129")
        data["evals"]["drafter"].update(host="ct200")

    code, staged = hostkit_json(fleet, "stage", *words, inventory=fleet.inventory_with(turn_round))
    assert code == 0, staged
    assert (staged["by"], staged["route"]) == ("pull", ["ct129"])
    there = inside(fleet, "ct200", staged["path"])
    assert sha256(there) == staged["sha256"]
    same_drafter(there, trained)


@pytest.mark.report("f11")
@pytest.mark.parametrize("words", [["--full"], []], ids=["full", "weights"])
def test_into_an_unprivileged_container_its_own_root_owns_what_came(
    fleet: Fleet, trained: Path, words: list[str]
) -> None:
    save(fleet, trained, 40)
    open_road(fleet)
    unprivileged(fleet)
    code, staged = hostkit_json(fleet, "stage", *words, inventory=by_forward(fleet, host="ct201"))
    assert code == 0, staged
    there = inside(fleet, "ct201", staged["path"])
    assert (there.stat().st_uid, there.stat().st_gid) == (SHIFT, SHIFT)  # as seen from here: its own root
    assert fleet.out("ct201", "stat", "-c", "%u", staged["path"]).strip() == "0"
    assert fleet.out("ct201", "sha256sum", staged["path"]).split()[0] == staged["sha256"]


@pytest.mark.report("f11")
def test_out_of_an_unprivileged_container_it_belongs_to_who_stages(fleet: Fleet, trained: Path) -> None:
    unprivileged(fleet)
    file = save(fleet, trained, 40, host="ct201")
    for path in (file, file.parent, file.parent.parent):
        os.chown(path, SHIFT + 1000, SHIFT + 1000)
    saved = time.time() - 3600  # whether a writer is still at it cannot be told of another user's file there
    os.utime(file, (saved, saved))
    inventory = fleet.inventory_with(lambda data: data["runs"]["drafter"].update(host="ct201"))
    code, staged = hostkit_json(fleet, "stage", "--full", inventory=inventory)
    assert code == 0, staged
    there = inside(fleet, "ct129", staged["path"])
    assert (there.stat().st_uid, there.stat().st_gid) == (0, 0)
    assert sha256(there) == sha256(trained)
    assert staged["by"] == "pull"
