"""A view on a large storage brings the stretch that is viewed: equal, with its strides and what it shares."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import checkpoint_reader
from subset import stream, torch_layout
from tests.unit.remote.subset.test_torch_layout import flip

pytestmark = pytest.mark.usefixtures("strict")


def views() -> dict[str, Any]:
    import torch

    base, other = torch.arange(100_000, dtype=torch.float32), torch.randn(40_000).to(torch.bfloat16)
    return {
        "a": base[50_007:50_107].view(10, 10).t(),
        "b": base[50_050:50_060],
        "again": base[50_007:50_107].view(10, 10).t(),
        "parameter": torch.nn.Parameter(other[1000:1003]),
        "scalar": other[999],
        "empty": base[99_999:99_999],
        "f8": torch.ones(9000).to(torch.float8_e4m3fn)[4001:4004],
        "u16": torch.arange(5000).to(torch.uint16)[4001:4004],
        "whole": torch.arange(7),
        "expanded": torch.randn(5000)[3000:3001].expand(4),
    }


def save(path: Path, weights: Any) -> str:
    import torch

    torch.save({"drafter": weights, "step": 3}, path)
    return str(path)


def trimmed(path: str) -> tuple[torch_layout.Layout, dict[str, Any]]:
    import torch

    layout = torch_layout.lay_out(path, ["drafter"], trim=True)
    with Path(path + ".out").open("wb") as out:
        stream.send(layout, path, out.write)
    assert zipfile.ZipFile(path + ".out").testzip() is None
    found = torch.load(path + ".out", weights_only=True)
    assert isinstance(found, dict)
    return layout, found["drafter"]


def test_views_come_alone_and_keep_their_strides_and_what_they_share(tmp_path: Path) -> None:
    import torch

    path = save(tmp_path / "c.pt", views())
    before = torch.load(path, weights_only=True)["drafter"]
    layout, found = trimmed(path)
    for name, tensor in before.items():
        raw = (
            (found[name].view(torch.uint8), tensor.view(torch.uint8))
            if name == "f8"
            else (found[name], tensor)
        )
        assert torch.equal(*raw), name
        assert found[name].stride() == tensor.stride()
        assert type(found[name]) is type(tensor)
    assert found["a"].untyped_storage().data_ptr() == found["b"].untyped_storage().data_ptr()
    apart = (found["b"].data_ptr() - found["a"].data_ptr(), before["b"].data_ptr() - before["a"].data_ptr())
    assert apart[0] == apart[1]
    assert layout.wanted_bytes < 1000
    assert Path(path + ".out").stat().st_size < 8000
    assert torch.load(path + ".out", weights_only=True, mmap=True)["drafter"]["scalar"] == before["scalar"]


def test_without_being_asked_for_all_comes_and_the_plan_says_what_nobody_views(tmp_path: Path) -> None:
    path = save(tmp_path / "c.pt", views())
    plan = stream.plan(path, ["drafter"])
    assert plan["wanted_bytes"] > 500_000
    lean = stream.plan(path, ["drafter"], trim=True)
    assert plan["wanted_bytes"] - plan["unviewed_bytes"] == lean["wanted_bytes"]
    assert plan["digest"] != lean["digest"]


def test_where_all_is_viewed_trimming_changes_nothing(tmp_path: Path) -> None:
    import torch

    base = torch.randn(1000)
    path = save(tmp_path / "c.pt", {"low": base[:500], "high": base[500:]})
    plans = [stream.plan(path, ["drafter"], trim=trim) for trim in (False, True)]
    assert plans[0]["pieces"] == plans[1]["pieces"]
    assert plans[0]["unviewed_bytes"] == 0


@pytest.mark.parametrize("at", [0.1, 0.5, 0.9])
def test_a_bit_flipped_anywhere_in_the_storage_is_found_though_only_a_part_is_sent(
    tmp_path: Path, at: float
) -> None:
    import torch

    path = Path(save(tmp_path / "c.pt", {"view": torch.arange(100_000.0)[50_000:50_010]}))
    with zipfile.ZipFile(path) as archive:
        size = archive.getinfo("c/data/0").file_size
    data, payload = bytearray(path.read_bytes()), path.read_bytes().index(torch.arange(8.0).numpy().tobytes())
    data[payload + int(at * size)] ^= 1
    path.write_bytes(data)
    reply = stream.plan(str(path), ["drafter"], trim=True)
    assert reply["code"] == "crc"
    assert "data/0 does not have its recorded CRC" in reply["reason"]


def test_the_stretch_is_proven_once_more_when_it_is_sent(tmp_path: Path) -> None:
    import torch

    path = Path(save(tmp_path / "c.pt", {"view": torch.arange(100_000.0)[50_000:60_000]}))
    layout = torch_layout.lay_out(str(path), ["drafter"], trim=True)
    flip(path, "data/0")
    layout.identity = torch_layout.identity(str(path))
    with pytest.raises(stream.CrcError):
        stream.send(layout, str(path), lambda _: None)


def test_a_trimmed_copy_goes_on_at_any_byte(tmp_path: Path) -> None:
    import torch

    path = save(tmp_path / "c.pt", {"view": torch.randn(100_000)[50_000:60_000]})
    layout = torch_layout.lay_out(path, ["drafter"], trim=True)
    whole: list[bytes] = []
    stream.send(layout, path, lambda data: whole.append(bytes(data)))
    for begin in (1, 700, 20_000, layout.size - 3):
        rest: list[bytes] = []
        again = torch_layout.lay_out(path, ["drafter"], trim=True)
        stream.send(again, path, lambda data: rest.append(bytes(data)), begin)  # noqa: B023
        assert b"".join(rest) == b"".join(whole)[begin:]


def test_records_without_a_crc_get_one_of_what_comes(tmp_path: Path) -> None:
    import torch
    from torch.utils.serialization import config

    config.save.compute_crc32 = False
    try:
        path = save(tmp_path / "c.pt", {"view": torch.randn(9000)[5000:5100]})
    finally:
        config.save.compute_crc32 = True
    _, found = trimmed(path)
    assert torch.equal(found["view"], torch.load(path, weights_only=True)["drafter"]["view"])


def test_a_selection_that_was_trimmed_is_a_whole_checkpoint_and_is_not_trimmed_further(
    tmp_path: Path,
) -> None:
    path = save(tmp_path / "c.pt", views())
    trimmed(path)
    assert checkpoint_reader.check(path + ".out")["code"] is None
    assert stream.plan(path + ".out", ["drafter"])["unviewed_bytes"] < 64 * 6


def test_the_values_of_a_sparse_tensor_are_views_too(tmp_path: Path) -> None:
    import torch

    with torch.sparse.check_sparse_tensor_invariants():
        sparse = torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.randn(9000)[5:7], (3,)).coalesce()
        layout, found = trimmed(save(tmp_path / "c.pt", {"sparse": sparse}))
        assert torch.equal(found["sparse"].to_dense(), sparse.to_dense())
    assert layout.wanted_bytes < 500


def test_a_storage_that_something_else_refers_to_comes_whole(tmp_path: Path) -> None:
    import torch

    view = torch.randn(9000)[5000:5100]
    alone = stream.plan(save(tmp_path / "a.pt", {"view": view}), ["drafter"])
    assert alone["unviewed_bytes"] > 30_000
    both = {"view": view, "storage": view._typed_storage()}
    assert stream.plan(save(tmp_path / "b.pt", both), ["drafter"])["unviewed_bytes"] == 0


def test_a_plan_that_reads_all_of_it_is_made_at_the_lowest_priority(tmp_path: Path) -> None:
    path = save(tmp_path / "c.pt", views())
    code = (
        f"import json, os, sys; sys.path.insert(0, {str(Path(checkpoint_reader.__file__).parent)!r})\n"
        "import checkpoint_reader\n"
        f"reply = checkpoint_reader.serve({{'op': 'plan', 'path': {path!r}, 'keys': ['drafter'], 'trim': True}})\n"
        "print(json.dumps([reply['code'], os.nice(0)]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120, check=True)
    assert json.loads(done.stdout) == [None, 19]
