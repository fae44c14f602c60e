"""Who carries the bytes: pulled, pushed or relayed, chosen by what works, with the same proofs and the same resume."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from hostkit.errors import DataError, UnreachableError
from hostkit.staging.method import Chosen, Method
from hostkit.staging.models import StagePlan
from hostkit.staging.plan import _via, plan_stage
from hostkit.staging.stage import stage
from hostkit.staging.transfer_route import By, TransferRoute
from hostkit.transport.connections import Connections
from tests.contract.servers import Fleet, has_ipv6
from tests.unit.remote.checkpoint.test_completeness import safetensors_file
from tests.unit.remote.subset.test_torch_layout import flip
from tests.unit.staging.conftest import Ground, saved
from tests.unit.staging.test_interruption import alive, lock, other_command, senders, until
from tests.unit.staging.test_method import same_weights, trained


@pytest.fixture
def one_way(tmp_path: Path, servers: Fleet) -> Ground:
    """The trainer has a key to the evaluation's host, and that has none to the trainer."""
    hosts = {
        "trainer": servers.host(servers.server("ct129")),
        "eval": servers.host(servers.server("pve"), via="trainer", login="there"),
    }
    return Ground(tmp_path, hosts, source="trainer", destination="eval")


@pytest.fixture
def strangers(tmp_path: Path, servers: Fleet) -> Ground:
    """Two containers on two hosts, of which neither has a key to the other."""
    hosts = {
        "pve1": servers.host(servers.server("ct129")),
        "pve2": servers.host(servers.server("pve")),
        "ct200": {"pct": 200, "via": "pve1"},
        "ct129": {"pct": 129, "via": "pve2"},
    }
    return Ground(tmp_path, hosts, source="ct200", destination="ct129")


def planned(ground: Ground, *, method: Method = "full", by: By = "auto") -> StagePlan:
    inventory = ground.inventory()
    with Connections(inventory) as connections:
        (one,) = ground.candidates(connections)
        where = ("drafter", one, ground.destination, str(ground.staged))
        return plan_stage(connections, inventory, *where, method=method, by=by)


def staged_by(ground: Ground, plan: StagePlan) -> Any:
    inventory = ground.inventory()
    with Connections(inventory) as connections:
        return stage(connections, inventory, plan)


def streamed(plan: StagePlan) -> StagePlan:
    """Return the plan as it is made where rsync is missing, of a copy whose sender runs where its carrier does."""
    argv = ("python3", "-I", "-S", "-B", "-")
    return plan.model_copy(update={"via": "stream", "argv": argv, "names": ""})


def test_the_source_pushes_where_the_destination_does_not_reach_it_and_the_plan_says_so(
    one_way: Ground,
) -> None:
    path = trained(one_way)
    plan = planned(one_way, method="weights")
    assert (plan.by, plan.route) == ("push", ("trainer", "eval"))
    assert "eval does not reach trainer" in plan.by_why
    assert "pushed by trainer" in plan.step_of_plan().summary
    staged = staged_by(one_way, plan)
    same_weights(staged.path, path)
    manifest = json.loads((Path(staged.path).parent / "manifest.json").read_text())
    assert (manifest["by"], manifest["route"]) == ("push", ["trainer", "eval"])
    assert "does not reach" in manifest["by_why"]


def test_the_whole_file_is_pushed_by_rsync_and_goes_on_where_it_was_cut(one_way: Ground) -> None:
    path = saved(one_way.root / "step_1" / "checkpoint.pt", 1)
    plan = planned(one_way)
    assert (plan.by, plan.via) == ("push", "rsync")
    partial = one_way.staged / ".staging" / plan.name
    partial.mkdir(parents=True)
    (partial / "checkpoint.pt").write_bytes(path.read_bytes()[:123_456])
    staged = staged_by(one_way, plan)
    assert Path(staged.path).read_bytes() == path.read_bytes()
    assert staged.resumed_at == 123_456


def test_what_is_wrong_with_the_checkpoint_is_told_before_it_is_known_who_reaches_whom(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(ground.root / "step_1" / "checkpoint.pt", 1)
    known = threading.Event()

    def unreadable(*_: Any, **__: Any) -> None:
        raise DataError("it is not to be read", where="box")

    monkeypatch.setattr("hostkit.staging.transfer_route.choose_route", lambda *_: known.wait())
    monkeypatch.setattr("hostkit.staging.plan.inspect_checkpoint", unreadable)
    try:
        with pytest.raises(DataError, match="not to be read"):
            planned(ground)
        assert not known.is_set()
    finally:
        known.set()


def test_neither_reaches_the_other_and_nothing_is_relayed_unasked(strangers: Ground) -> None:
    saved(strangers.root / "step_1" / "checkpoint.pt", 1)
    with pytest.raises(
        UnreachableError, match=r"ct129 does not reach ct200 \(.*\), and ct200 does not"
    ) as told:
        strangers.stage(1)
    assert "--by relay" in str(told.value.hint)
    assert strangers.finals() == []


@pytest.mark.parametrize("method", ["weights", "full"])
def test_a_relay_brings_it_from_container_to_container(strangers: Ground, method: Method) -> None:
    path = trained(strangers)
    plan = planned(strangers, method=method, by="relay")
    assert (plan.by, plan.via) == ("relay", "stream")
    assert plan.route == ("ct200", "pve1", "this machine", "pve2", "ct129")
    staged = staged_by(strangers, plan)
    same = Path(staged.path).read_bytes() == path.read_bytes()
    same_weights(staged.path, path) if method == "weights" else None
    assert same == (method == "full")
    assert staged.by == "relay"
    assert staged.crc_proven > 3


@pytest.mark.report("d9")
@pytest.mark.parametrize("via", ["rsync", "stream"])
def test_any_name_is_pushed_and_nothing_in_it_is_run(one_way: Ground, via: str) -> None:
    name = "-rf my run (v2) `touch canary` 'q' \"ü\" a:b $(touch canary);\n*"
    path = saved(one_way.root / name / "step_1" / "check point.pt", 1, numbers=1000)
    inventory = one_way.inventory()
    pattern = "*/step_{step}/check point.pt"
    with Connections(inventory) as connections:
        (one,) = one_way.candidates(connections, pattern)
        where = ("drafter", one, "eval", str(one_way.staged))
        plan = plan_stage(connections, inventory, *where, method="full")
        plan = plan if via == "rsync" else streamed(plan)
        staged = stage(connections, inventory, plan)
    assert Path(staged.path).read_bytes() == path.read_bytes()
    assert not list(one_way.folder.rglob("canary"))
    assert not Path("canary").exists()


@pytest.mark.report("d1")
@pytest.mark.parametrize(("by", "method"), [("push", "full"), ("relay", "weights")])
def test_what_the_shells_of_both_sides_print_does_not_matter(
    tmp_path: Path, servers: Fleet, by: By, method: Method
) -> None:
    hosts = {
        "trainer": servers.host(servers.server("noisy-ct129", noisy=True)),
        "eval": servers.host(servers.server("noisy-pve", noisy=True), via="trainer", login="there"),
    }
    ground = Ground(tmp_path, hosts, source="trainer", destination="eval")
    path = trained(ground)
    staged = ground.stage(1, method=method, by=by)
    same_weights(staged.path, path) if method == "weights" else None
    assert (Path(staged.path).read_bytes() == path.read_bytes()) == (method == "full")


@pytest.mark.report("d1")
def test_a_shell_that_prints_is_no_way_for_a_pulling_rsync_and_is_streamed_past(
    tmp_path: Path, servers: Fleet
) -> None:
    hosts = {
        "ct129": servers.host(servers.server("ct129")),
        "pve": servers.host(servers.server("noisy-pve", noisy=True), via="ct129", login="there"),
        "ct200": {"pct": 200, "via": "pve"},
    }
    ground = Ground(tmp_path, hosts, source="ct200", destination="ct129")
    path = saved(ground.root / "step_1" / "checkpoint.pt", 1)
    plan = planned(ground)
    assert (plan.by, plan.via) == ("pull", "stream")
    assert "a login shell on the route prints" in plan.via_why
    assert Path(staged_by(ground, plan).path).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("shell", ["fish", "tcsh", "dash"])
def test_another_login_shell_at_the_destination_is_no_hindrance(
    tmp_path: Path, servers: Fleet, shell: str
) -> None:
    if not shutil.which(shell):
        pytest.skip(f"no {shell} on this machine")
    server = servers.server(f"eval-{shell}", shell=shell)
    hosts = {
        "trainer": servers.host(servers.server("ct129")),
        "eval": servers.host(server, via="trainer", login="there"),
    }
    ground = Ground(tmp_path, hosts, source="trainer", destination="eval")
    path = saved(ground.root / "step_1" / "checkpoint.pt", 1, numbers=1000)
    staged = ground.stage(1)
    assert (staged.by, staged.manifest["carried"]) == ("push", "rsync")
    assert Path(staged.path).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("source", "by", "route"), [("here", "push", ("here", "far")), ("far", "pull", ("far",))]
)
def test_this_machine_is_a_source_or_a_destination_like_any_other(
    tmp_path: Path, servers: Fleet, source: str, by: str, route: tuple[str, ...]
) -> None:
    hosts = {"here": {"local": True}, "far": servers.host(servers.server("ct129"))}
    other = "far" if source == "here" else "here"
    ground = Ground(tmp_path, hosts, source=source, destination=other)
    path = trained(ground)
    for method in ("weights", "full"):
        staged = ground.stage(1, method=method)  # type: ignore[arg-type]
        assert (staged.by, staged.route) == (by, route)
    assert Path(staged.path).read_bytes() == path.read_bytes()


@pytest.mark.report("g9")
@pytest.mark.parametrize(("by", "how"), [("push", signal.SIGINT), ("relay", signal.SIGTERM)])
def test_when_the_command_ends_what_it_has_carried_ends_too_and_stays_for_the_next(
    one_way: Ground, by: By, how: signal.Signals
) -> None:
    path = saved(one_way.root / "step_1" / "checkpoint.pt", 1, numbers=3_000_000)
    before = senders()
    first = other_command(one_way, method="full", by=by, rate=2_000_000)
    partial = one_way.staged / ".staging"
    until(lambda: any(one.stat().st_size > 200_000 for one in partial.glob("*/*.pt")), 60)
    far_ends, receiver = senders() - before, json.loads(lock(one_way).read_text())["pid"]
    assert far_ends or by == "push"  # rsync pushes without a far end that sends
    first.send_signal(how)
    first.wait(20)
    until(lambda: not any(alive(pid) for pid in [receiver, *far_ends]), 20)
    (part,) = partial.glob("*/*.pt")
    size = part.stat().st_size
    staged = one_way.stage(1, by=by)
    assert 0 < size == staged.resumed_at < path.stat().st_size
    assert Path(staged.path).read_bytes() == path.read_bytes()


# --- whole files by our own wire, where rsync is missing


def partial_of(ground: Ground, plan: StagePlan, name: str, data: bytes) -> None:
    file = ground.staged / ".staging" / plan.name / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)


@pytest.mark.report("d3")
def test_rsync_missing_on_a_side_is_said_and_the_stream_taken() -> None:
    has, lacks = {"rsync": "/usr/bin/rsync"}, {"rsync": None}
    whole = Chosen("full", "", ())
    assert _via(whole, TransferRoute("pull", ""), {"ct200": has, "ct129": has})[0] == "rsync"
    for tools in ({"ct200": lacks, "ct129": has}, {"ct200": has, "ct129": lacks}):
        via, why = _via(whole, TransferRoute("pull", ""), tools)
        missing = next(host for host, found in tools.items() if found is lacks)
        assert (via, why) == ("stream", f"rsync missing on {missing}")


def test_a_streamed_file_goes_on_at_the_exact_byte_and_is_proven_whole(ground: Ground) -> None:
    path = saved(ground.root / "step_1" / "checkpoint.pt", 1)
    plan = streamed(planned(ground))
    partial_of(ground, plan, "checkpoint.pt", path.read_bytes()[:300_001])
    staged = staged_by(ground, plan)
    assert Path(staged.path).read_bytes() == path.read_bytes()
    assert staged.resumed_at == 300_001
    assert staged.crc_proven > 3


def test_a_damaged_part_of_a_streamed_file_is_thrown_away_and_copied_anew(ground: Ground) -> None:
    path = saved(ground.root / "step_1" / "checkpoint.pt", 1)
    plan = streamed(planned(ground))
    partial_of(ground, plan, "checkpoint.pt", bytes(300_001))
    staged = staged_by(ground, plan)
    assert Path(staged.path).read_bytes() == path.read_bytes()
    assert staged.resumed_at == 0


@pytest.mark.parametrize("damaged", [False, True])
def test_a_streamed_format_without_crcs_is_held_against_the_source_when_it_goes_on(
    ground: Ground, damaged: bool
) -> None:
    path = safetensors_file(ground.root / "step_1" / "checkpoint.pt", 50_000)
    path.write_bytes(path.read_bytes()[:-200_000] + os.urandom(200_000))
    plan = streamed(planned(ground))
    part = bytearray(path.read_bytes()[:150_000])
    part[70_000] ^= damaged
    partial_of(ground, plan, "checkpoint.pt", bytes(part))
    assert Path(staged_by(ground, plan).path).read_bytes() == path.read_bytes()


def test_a_folder_is_streamed_with_all_its_files_also_the_empty_ones(ground: Ground) -> None:
    folder = ground.root / "step_3"
    one = safetensors_file(folder / "model-1.safetensors")
    safetensors_file(folder / "deeper" / "optimizer.safetensors")
    (folder / "zero.txt").touch()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": one.name}}))
    inventory = ground.inventory(pattern="step_{step}")
    with Connections(inventory) as connections:
        (found,) = ground.candidates(connections, "step_{step}")
        where = ("drafter", found, "box", str(ground.staged))
        plan = streamed(plan_stage(connections, inventory, *where, method="full"))
        staged = stage(connections, inventory, plan)
    there = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert {name: (Path(staged.path) / name).read_bytes() for name in there} == there


@pytest.mark.parametrize("by", ["push", "relay"])
def test_a_flipped_bit_is_found_and_named_whoever_carries(one_way: Ground, by: By) -> None:
    path = trained(one_way)
    flip(path, "data/26")
    for method in ("weights", "full"):
        with pytest.raises(DataError, match=r"record checkpoint/data/26 does not have its recorded CRC"):
            one_way.stage(1, method=method, by=by)  # type: ignore[arg-type]
    assert one_way.finals() == []


def test_a_push_that_does_not_reach_the_destination_names_it(strangers: Ground) -> None:
    trained(strangers)
    with pytest.raises(UnreachableError) as told:
        strangers.stage(1, method="weights", by="push")
    assert "ct200 did not reach the receiver on ct129" in told.value.what
    assert "known_hosts of ct200 itself" in str(told.value.hint)
    assert told.value.hop in ("pve2", "ct129")


@pytest.mark.report("d13")
@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on this machine")
@pytest.mark.parametrize(
    ("by", "login", "method"),
    [
        ("push", "there", "full"),
        ("pull", "there", "full"),
        ("relay", "there", "weights"),
        ("relay", "forward", "full"),
    ],
)
def test_hosts_with_ipv6_addresses_alone_are_reached_whoever_carries(
    tmp_path: Path, servers: Fleet, by: By, login: str, method: Method
) -> None:
    outer, inner = (servers.server(name, "ListenAddress ::1") for name in ("six-outer", "six-inner"))
    known = tmp_path / "known_hosts"
    known.write_text("".join(one.known_hosts_line(f"[::1]:{one.port}") for one in (outer, inner)))
    here = {"address": "::1", "known_hosts": str(known)}
    hosts = {
        "outer": servers.host(outer) | here,
        "inner": servers.host(inner, via="outer", login=login) | here,
        "ct": {"pct": 200, "via": "inner"},
    }
    there = ("ct", "outer") if by == "pull" else ("outer", "ct")
    ground = Ground(tmp_path, hosts, source=there[0], destination=there[1])
    path = trained(ground)
    staged = ground.stage(1, method=method, by=by)
    assert staged.by == by
    if method == "full":
        assert Path(staged.path).read_bytes() == path.read_bytes()
    else:
        same_weights(staged.path, path)


def test_python_ends_without_waiting_for_a_way_that_is_still_looked_for() -> None:
    program = (
        "import time; from hostkit.staging import transfer_route;"
        " transfer_route.choose_route = lambda *_: time.sleep(100);"
        " transfer_route.find_route(None, None, 'ct200', 'ct129')"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=50)
