"""Only the needed tensors come: through ssh and pct, proven piece by piece, going on at any byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hostkit.checkpoints import Layout
from hostkit.checkpoints.models import Contents, Entry, File, TensorFacts
from hostkit.errors import DataError
from hostkit.staging.method import choose_method
from hostkit.staging.plan import plan_stage
from hostkit.staging.stage import stage
from hostkit.transport.connections import Connections
from tests.unit.remote.subset.test_torch_layout import flip
from tests.unit.staging.conftest import Ground


def trained(ground: Ground, step: int = 1, *, numbers: int = 50_000, folder: str = "") -> Path:
    """Save as a trainer does that keeps its optimizer in the same file: six times the weights."""
    import torch

    path = ground.root / folder / f"step_{step}" / "checkpoint.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    weights = {f"layers.{i}.weight": torch.randn(numbers) for i in range(4)}
    moments = {i: torch.randn(numbers) for i in range(24)}
    torch.save({"optimizer": moments, "drafter": weights, "step": step, "config": {"block_size": 16}}, path)
    return path


def same_weights(staged: str, source: Path) -> None:
    import torch

    here, there = torch.load(staged, weights_only=True), torch.load(source, weights_only=True)
    assert list(here) == ["drafter", "step", "config"]
    for name, tensor in there["drafter"].items():
        assert torch.equal(here["drafter"][name], tensor)


def test_the_weights_alone_come_through_ssh_and_pct(far: Ground) -> None:
    path = trained(far)
    staged = far.stage(1, method="weights")
    same_weights(staged.path, path)
    assert (staged.method, staged.route) == ("weights", ("ct129", "pve", "ct200"))
    assert staged.bytes < path.stat().st_size / 6
    assert staged.manifest["kept"] == ["drafter", "step", "config"]
    assert staged.manifest["dropped"] == ["optimizer"]
    assert far.stage(1, method="weights").reused


@pytest.mark.report("d9")
def test_any_name_comes_and_nothing_in_it_is_run(far: Ground) -> None:
    path = trained(far, folder="my run (v2) `touch canary` 'q' \"ü\" $(touch canary);\n*")
    same_weights(far.stage(1, pattern="*/step_{step}/checkpoint.pt", method="weights").path, path)
    assert not list(far.folder.rglob("canary"))
    assert not Path("canary").exists()


@pytest.mark.report("d1")
def test_what_login_shells_print_does_not_matter(tmp_path: Path, servers: Any) -> None:
    hosts = {
        "ct129": servers.host(servers.server("noisy-ct129", noisy=True)),
        "pve": servers.host(servers.server("noisy-pve", noisy=True), via="ct129", login="there"),
        "ct200": {"pct": 200, "via": "pve"},
    }
    ground = Ground(tmp_path, hosts, source="ct200", destination="ct129")
    path = trained(ground)
    same_weights(ground.stage(1, method="weights").path, path)


def test_whole_and_selected_stand_beside_each_other(ground: Ground) -> None:
    path = trained(ground)
    selected, full = ground.stage(1, method="weights"), ground.stage(1, method="full")
    assert selected.path != full.path
    assert Path(full.path).read_bytes() == path.read_bytes()
    same_weights(selected.path, path)


def test_a_flipped_bit_in_a_wanted_record_is_named_and_nothing_is_staged(ground: Ground) -> None:
    path = trained(ground)
    flip(path, "data/26")
    with pytest.raises(DataError, match=r"record checkpoint/data/26 does not have its recorded CRC"):
        ground.stage(1, method="weights")
    assert ground.finals() == []


def test_a_flipped_bit_in_the_optimizer_does_not_matter(ground: Ground) -> None:
    path = trained(ground)
    flip(path, "data/3")
    same_weights(ground.stage(1, method="weights").path, path)


def planned(ground: Ground, connections: Connections) -> Any:
    (one,) = ground.candidates(connections)
    where = ("drafter", one, "box", str(ground.staged))
    return where, plan_stage(connections, connections.inventory, *where, method="weights")


@pytest.mark.report("c17", "c5")
@pytest.mark.parametrize(("act", "said"), [("vanish", "vanished"), ("save again", "changed")])
def test_a_source_that_is_another_than_the_planned_one_is_refused(
    ground: Ground, act: str, said: str
) -> None:
    path = trained(ground)
    with Connections(ground.inventory()) as connections:
        _, plan = planned(ground, connections)
        path.unlink()
        if act == "save again":
            trained(ground)
        with pytest.raises(DataError, match=said):
            stage(connections, connections.inventory, plan)
    assert ground.finals() == []


@pytest.mark.parametrize(
    ("kept", "bad"), [(500_000, None), (790_000, 300_000), (500_000, 450_000), (300_000, 20)]
)
def test_it_goes_on_from_what_is_there_and_from_the_last_good_record_of_what_is_damaged(
    ground: Ground, kept: int, bad: int | None
) -> None:
    path = trained(ground)
    whole = Path(ground.stage(1, method="weights").path).read_bytes()
    with Connections(ground.inventory()) as connections:
        _, plan = planned(ground, connections)
        partial = ground.staged / ".staging" / plan.name
        (ground.staged / plan.name).rename(partial)
        (partial / "manifest.json").unlink()
        part = bytearray(whole[:kept])
        if bad is not None:
            part[bad] ^= 1
        (partial / "checkpoint.pt").write_bytes(part)
        _, plan = planned(ground, connections)
        staged = stage(connections, connections.inventory, plan)
    assert Path(staged.path).read_bytes() == whole
    assert staged.resumed_at == kept if bad is None else staged.resumed_at <= kept
    same_weights(staged.path, path)


def weight(*path: str, bytes: int = 900 << 20) -> TensorFacts:
    return TensorFacts(path=path or ("drafter", "w"), shape=(1,), dtype="float32", storage="0", bytes=bytes)


def contents(**more: Any) -> Contents:
    tensors = (weight(),)
    base: dict[str, Any] = {
        "path": "/c",
        "complete": True,
        "format": "torch-zip",
        "size": 1 << 30,
        "tensors": tensors,
    }
    return Contents(**(base | {"top": (Entry(key="drafter", tensors=1, bytes=900 << 20),)} | more))


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (contents(), "nearly all of it is weights"),
        (contents(size=20 << 20, tensors=(weight(bytes=10 << 20),)), "nearly all"),
        (contents(format="torch-legacy"), "cannot be extracted from torch-legacy"),
        (contents(tensors=()), "have no key of their own"),
    ],
)
def test_the_whole_file_comes_where_a_selection_saves_nothing_or_cannot_be_made(
    what: Contents, why: str
) -> None:
    chosen = choose_method(None, None, "box", what, Layout(), method="auto")  # type: ignore[arg-type]
    assert chosen.method == "full"
    assert why in chosen.why


def test_for_somebodys_own_harness_the_whole_file_comes_unless_the_weights_are_declared() -> None:
    large = contents(size=10 << 30)
    chosen = choose_method(None, None, "box", large, Layout(), method="auto", own_harness=True)  # type: ignore[arg-type]
    assert chosen.method == "full"
    assert "`weights:`" in chosen.why


def test_of_a_hugging_face_folder_the_training_state_stays_behind() -> None:
    names = {
        "model-1.safetensors": 10,
        "config.json": 1,
        "optimizer.pt": 99,
        "rng_state_0.pth": 9,
        "deeper/x.json": 1,
    }
    files = tuple(File(name=name, size=size, mtime_ns=0) for name, size in names.items())
    tensors = (TensorFacts(path=("w",), shape=(1,), dtype="float32", storage="model-1.safetensors:w"),)
    folder = contents(format="sharded", files=files, tensors=tensors)
    chosen = choose_method(None, None, "box", folder, Layout(), method="auto")  # type: ignore[arg-type]
    assert [file.name for file in chosen.files] == ["model-1.safetensors", "config.json"]
    assert "without 109 bytes" in chosen.why


def test_a_selection_that_was_asked_for_and_cannot_be_made_is_an_error_that_names_the_way_out(
    ground: Ground,
) -> None:
    import torch

    path = ground.root / "step_1" / "checkpoint.pt"
    path.parent.mkdir(parents=True)
    torch.save({"fc.weight": torch.ones(9)}, path)
    with pytest.raises(DataError, match="no key of their own") as raised:
        ground.stage(1, method="weights")
    assert "--full" in str(raised.value.hint)


def foreign_layout(kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what another trainer saves, and what the inventory says of it."""
    import torch

    def weights(before: str = "") -> dict[str, Any]:
        return {f"{before}layers.{i}.weight": torch.full((2000,), float(i)) for i in range(4)}

    moments = {i: torch.randn(2000) for i in range(24)}
    if kind == "DDP":
        saved = {"net": weights("module."), "optimizer": moments, "progress": {"steps_done": 1}}
        return saved, {"weights": ["net"], "step": "progress.steps_done"}
    if kind == "compiled":
        flat = {**weights("_orig_mod.drafter."), **weights("_orig_mod.target.")}
        saved = {"model": flat, "optimizer": moments, "progress": {"steps_done": 1}}
        return saved, {"weights": ["model.drafter"], "step": "progress.steps_done"}
    inner = {"model": {"drafter": weights("student."), "target": weights()}, "optimizer": moments}
    declared = {"weights": ["state.model.drafter"], "step": "loop.step", "strip": ["student."]}
    return {"state": inner, "loop": {"step": torch.tensor(1)}}, declared


@pytest.mark.report("c15", "c13")
@pytest.mark.parametrize("kind", ["DDP", "compiled", "nested"])
def test_of_a_foreign_layout_the_declared_weights_come_and_stand_bare_where_the_harness_looks(
    ground: Ground, kind: str
) -> None:
    import torch

    saved, declared = foreign_layout(kind)
    path = ground.root / "step_1" / "checkpoint.pt"
    path.parent.mkdir(parents=True)
    torch.save(saved, path)
    inventory = ground.inventory(**declared)
    with Connections(inventory) as connections:
        (one,) = ground.candidates(connections)
        where = ("drafter", one, "box", str(ground.staged))
        plan = plan_stage(connections, inventory, *where)
        assert (plan.method, plan.contents.step) == ("weights", 1)  # by itself, though the file is small
        staged = stage(connections, inventory, plan)
    found = torch.load(staged.path, weights_only=True)
    assert sorted(found["draft_state_dict"]) == [f"layers.{i}.weight" for i in range(4)]
    assert float(found["draft_state_dict"]["layers.3.weight"][0]) == 3.0
    assert staged.bytes < path.stat().st_size / 3
    assert (staged.manifest["step_inside"], found["step"]) == (1, 1)
    assert declared["weights"][0] in staged.manifest["kept"]
