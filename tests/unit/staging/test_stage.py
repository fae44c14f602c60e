"""Staging with real rsync: whole, proven and under its final name, or not there at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hostkit.errors import CannotCreateError, DataError, HostkitError
from tests.unit.staging.conftest import Ground, saved


def test_a_checkpoint_comes_through_ssh_and_pct_whole_and_proven(far: Ground) -> None:
    path = saved(far.root / "step_4000" / "checkpoint.pt", 4000)
    staged = far.stage(4000)
    assert Path(staged.path).read_bytes() == path.read_bytes()
    assert (staged.route, staged.host, staged.bytes) == (
        ("ct129", "pve", "ct200"),
        "ct129",
        path.stat().st_size,
    )
    assert staged.crc_proven > 3


def test_a_second_time_it_is_found_and_proven_again(ground: Ground) -> None:
    saved(ground.root / "step_1" / "checkpoint.pt", 1)
    first = ground.stage(1)
    assert not first.reused
    again = ground.stage(1)
    assert again.reused
    assert (again.path, again.sha256) == (first.path, first.sha256)


@pytest.mark.report("d11")
def test_a_staged_file_of_equal_size_and_time_with_other_bytes_is_replaced(ground: Ground) -> None:
    source = saved(ground.root / "step_1" / "checkpoint.pt", 1)
    staged = Path(ground.stage(1).path)
    look = staged.stat()
    damaged = bytearray(staged.read_bytes())
    damaged[5000] ^= 1
    staged.write_bytes(damaged)
    os.utime(staged, ns=(look.st_atime_ns, look.st_mtime_ns))
    again = ground.stage(1)
    assert not again.reused
    assert Path(again.path).read_bytes() == source.read_bytes()
    assert len(ground.finals()) == 1


@pytest.mark.report("d11")
def test_the_same_step_saved_again_is_another_checkpoint(ground: Ground) -> None:
    saved(ground.root / "step_1" / "checkpoint.pt", 1)
    first = ground.stage(1)
    source = saved(ground.root / "step_1" / "checkpoint.pt", 1, seed=7)
    second = ground.stage(1)
    assert first.path != second.path
    assert Path(second.path).read_bytes() == source.read_bytes()


@pytest.mark.report("d9")
@pytest.mark.parametrize(
    "name",
    ["my run (v2) `touch canary` 'q' ü", "-rf * ; touch canary", "#hash", 'a:b [c]\t"d"', "two\nlines"],
)
def test_any_name_is_staged_byte_for_byte_and_nothing_in_it_is_run(far: Ground, name: str) -> None:
    path = saved(far.root / name / "step_4000" / "check point.pt", 4000, numbers=1000)
    staged = far.stage(4000, pattern="*/step_{step}/check point.pt")
    assert Path(staged.path).read_bytes() == path.read_bytes()
    assert not list(far.folder.rglob("canary"))
    assert not Path("canary").exists()
    assert not Path("~/canary").expanduser().exists()


@pytest.mark.report("c9")
def test_a_link_is_staged_as_the_file_that_it_names(ground: Ground) -> None:
    real = saved(ground.folder / "elsewhere" / "real.pt", 5)
    (ground.root / "step_5").mkdir(parents=True)
    (ground.root / "step_5" / "checkpoint.pt").symlink_to(real)
    staged = Path(ground.stage(5).path)
    assert staged.is_file()
    assert not staged.is_symlink()
    assert staged.read_bytes() == real.read_bytes()


def test_a_folder_checkpoint_comes_with_all_its_files(ground: Ground) -> None:
    from tests.unit.remote.checkpoint.test_completeness import safetensors_file

    folder = ground.root / "step_3"
    one = safetensors_file(folder / "model-1.safetensors")
    safetensors_file(folder / "deeper" / "optimizer.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": one.name}}))
    staged = ground.stage(3, pattern="step_{step}")
    there = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    here = Path(staged.path)
    assert {name: (here / name).read_bytes() for name in there} == there
    assert staged.bytes == sum(len(data) for data in there.values())


@pytest.mark.report("c11")
def test_a_flipped_bit_on_the_sources_disk_is_found_and_its_record_named(ground: Ground) -> None:
    path = saved(ground.root / "step_1" / "checkpoint.pt", 1)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"record checkpoint/data/0 does not have its recorded CRC"):
        ground.stage(1)
    assert ground.finals() == []


@pytest.mark.report("c17")
def test_a_checkpoint_pruned_after_it_was_chosen_is_a_vanished_source(ground: Ground) -> None:
    from hostkit.staging.plan import plan_stage
    from hostkit.staging.stage import stage
    from hostkit.transport.connections import Connections

    path = saved(ground.root / "step_2000" / "checkpoint.pt", 2000)
    inventory = ground.inventory()
    with Connections(inventory) as connections:
        (one,) = ground.candidates(connections)
        where = ("drafter", one, "box", str(ground.staged))
        plan = plan_stage(connections, inventory, *where)
        path.unlink()
        with pytest.raises(DataError, match="vanished"):  # between plan and copy
            stage(connections, inventory, plan)
        with pytest.raises(DataError, match="vanished"):  # between choice and plan
            stage(connections, inventory, plan_stage(connections, inventory, *where))
    assert ground.finals() == []


def stub(ground: Ground, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Put another rsync before the real one, which stays reachable as $RSYNC."""
    import shutil

    folder = ground.folder / "bin"
    folder.mkdir()
    (folder / "rsync").write_text(f"#!/bin/bash\nRSYNC={shutil.which('rsync')}\n{text}\n")
    (folder / "rsync").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.report("c5", "d5")
@pytest.mark.parametrize(
    ("act", "said"),
    [("printf x | dd of={path} conv=notrunc status=none", "changed"), ("rm {path}", "vanished")],
)
def test_a_source_that_is_not_the_same_afterwards_is_not_staged(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, act: str, said: str
) -> None:
    path = saved(ground.root / "step_1" / "checkpoint.pt", 1)
    stub(ground, monkeypatch, '"$RSYNC" "$@"; s=$?; ' + act.format(path=path) + "; exit $s")
    with pytest.raises(DataError, match=said):
        ground.stage(1)
    assert ground.finals() == []
    assert not list((ground.staged / ".staging").glob("*/*"))


def test_a_source_that_is_written_in_place_amid_the_copy_is_a_changed_one_and_no_damaged_disk(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(ground.root / "step_1" / "checkpoint.pt", 1)
    middle = path.stat().st_size // 2
    spoil = f"head -c 64 /dev/urandom | dd of={path} bs=1 seek={middle} conv=notrunc status=none"
    stub(ground, monkeypatch, spoil + '; exec "$RSYNC" "$@"')
    with pytest.raises(DataError, match="source changed while it was copied"):
        ground.stage(1)
    assert ground.finals() == []


HALF = 'for to; do :; done; mkdir -p "$to"; head -c 1000 {path} > "$to/checkpoint.pt"; echo "{said}" >&2; exit {code}'


@pytest.mark.report("d7")
@pytest.mark.parametrize("code", [10, 11, 12, 20, 23, 24, 30, 35, 255])
def test_every_status_of_rsync_but_zero_is_a_failed_staging(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    path = saved(ground.root / "step_1" / "checkpoint.pt", 1)
    stub(ground, monkeypatch, HALF.format(path=path, said="rsync error: told by a stub", code=code))
    with pytest.raises(HostkitError, match="told by a stub") as raised:
        ground.stage(1)
    assert raised.value.exit_code != 0
    assert ground.finals() == []


@pytest.mark.report("d7")
def test_a_disk_that_fills_up_is_said_and_what_came_is_kept_and_used(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(ground.root / "step_1" / "checkpoint.pt", 1)
    with monkeypatch.context() as patch:
        stub(
            ground, patch, HALF.format(path=path, said="write failed: No space left on device (28)", code=11)
        )
        with pytest.raises(CannotCreateError, match="disk full"):
            ground.stage(1)
    staged = ground.stage(1)
    assert staged.resumed_at == 1000
    assert Path(staged.path).read_bytes() == path.read_bytes()


def test_a_partial_file_that_is_damaged_is_thrown_away_and_copied_anew(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(ground.root / "step_1" / "checkpoint.pt", 1)
    with monkeypatch.context() as patch:
        zeros = HALF.replace("head -c 1000 {path}", "head -c 90000 /dev/zero")
        stub(ground, patch, zeros.format(path=path, said="cut", code=12))
        with pytest.raises(HostkitError, match="broke off"):
            ground.stage(1)
    staged = ground.stage(1)
    assert staged.resumed_at == 0
    assert Path(staged.path).read_bytes() == path.read_bytes()


def test_a_format_without_crcs_is_compared_block_by_block_when_it_goes_on(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.unit.remote.checkpoint.test_completeness import safetensors_file

    path = safetensors_file(ground.root / "step_1" / "checkpoint.pt", 50_000)
    path.write_bytes(path.read_bytes()[:-200_000] + os.urandom(200_000))
    with monkeypatch.context() as patch:
        zeros = HALF.replace("head -c 1000 {path}", "head -c 90000 /dev/zero")
        stub(ground, patch, zeros.format(path=path, said="cut", code=12))
        with pytest.raises(HostkitError, match="broke off"):
            ground.stage(1)
    assert Path(ground.stage(1).path).read_bytes() == path.read_bytes()


def test_without_enough_space_nothing_moves(ground: Ground) -> None:
    from hostkit.staging.plan import plan_stage
    from hostkit.transport.connections import Connections

    saved(ground.root / "step_1" / "checkpoint.pt", 1)
    inventory = ground.inventory()
    with Connections(inventory) as connections:
        (one,) = ground.candidates(connections)
        plan = plan_stage(connections, inventory, "drafter", one, "box", str(ground.staged))
    for lack, said in (
        ({"free": 10}, "not enough space"),
        ({"inodes": 3}, "inodes"),
        ({"writable": False}, "permission"),
    ):
        (error,) = plan.model_copy(update={"room": plan.room | lack}).obstacles()
        assert isinstance(error, CannotCreateError)
        assert said in error.what
    assert not ground.staged.exists()


def test_a_plan_writes_nothing_and_names_what_will_be_written(far: Ground) -> None:
    from hostkit.staging.plan import plan_stage
    from hostkit.transport.connections import Connections

    saved(far.root / "step_1" / "checkpoint.pt", 1)
    inventory = far.inventory()
    with Connections(inventory) as connections:
        (one,) = far.candidates(connections)
        plan = plan_stage(connections, inventory, "drafter", one, "ct129", str(far.staged))
    assert not far.staged.exists()
    step = plan.step_of_plan()
    assert {(one.kind, one.host) for one in step.effects} == {("reads", "ct200"), ("writes", "ct129")}
    assert plan.need == plan.bytes == sum(file.size for file in plan.contents.files)


def test_older_ones_of_the_run_are_let_go_and_named(ground: Ground) -> None:
    saved(ground.root / "step_1" / "checkpoint.pt", 1, numbers=10)
    first = Path(ground.stage(1).path)
    saved(ground.root / "step_2" / "checkpoint.pt", 2, numbers=10)
    assert ground.stage(2, keep=1).removed == (str(first.parent),)
    assert not first.exists()


def test_a_plan_says_which_older_ones_will_go(ground: Ground) -> None:
    from hostkit.staging.plan import plan_stage
    from hostkit.transport.connections import Connections

    first = Path(ground.stage(saved_step(ground, 1)).path).parent
    second = Path(ground.stage(saved_step(ground, 2)).path).parent
    saved_step(ground, 3)
    inventory = ground.inventory()
    with Connections(inventory) as connections:
        one = ground.candidates(connections)[-1]
        where = ("drafter", one, "box", str(ground.staged))
        for keep, going in ((1, [second, first]), (2, [first]), (3, [])):
            step = plan_stage(connections, inventory, *where, keep=keep).step_of_plan()
            assert [effect.path for effect in step.effects[3:]] == [str(path) for path in going]
            assert all(str(path) in step.summary for path in going)
            assert {effect.kind for effect in step.effects[3:]} <= {"writes"}
    assert first.exists()


def saved_step(ground: Ground, step: int) -> int:
    saved(ground.root / f"step_{step}" / "checkpoint.pt", step, numbers=10)
    return step


def test_progress_is_told(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(ground.root / "step_1" / "checkpoint.pt", 1)
    stub(ground, monkeypatch, 'sleep 0.5; exec "$RSYNC" "$@"')
    ground.stage(1, poll=0.05)
    phases = {phase for phase, _, _ in ground.told}
    assert phases & {"copy", "prove"}
    assert all(0 <= done <= total == path.stat().st_size for _, done, total in ground.told)
