"""Taking tensors out of a safetensors file: what its own library loads is equal, and nothing is believed unread."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from subset import crcs, local_copy, stream
from subset.lay_out import lay_out
from tests.unit.remote.subset.test_torch_layout import sent


def tensors() -> dict[str, Any]:
    import torch

    generator = torch.Generator().manual_seed(0)
    return {
        "optimizer.m": torch.randn(5000, generator=generator),
        "optimizer.flag": torch.tensor([True, False, True]),
        "drafter.fc.weight": torch.randn(30, 20, generator=generator),
        "drafter.half": torch.randn(7, generator=generator).to(torch.bfloat16),
        "drafter.byte": torch.arange(5, dtype=torch.uint8),
        "drafter.empty": torch.empty(0, 3),
        "drafter.wide": torch.arange(3, dtype=torch.int64),
        "drafter2.x": torch.ones(2),
    }


def saved(path: Path) -> Path:
    from safetensors.torch import save_file

    save_file(tensors(), path, {"step": "7", "\u00fc": "x"})
    return path


def take(path: Path, *keys: str) -> tuple[dict[str, Any], Path]:
    out = path.with_name("out.safetensors")
    return local_copy.copy(str(path), str(out), list(keys), True, None), out


def test_the_library_loads_the_wanted_tensors_alone_and_equal(tmp_path: Path) -> None:
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file

    path = saved(tmp_path / "model.safetensors")
    reply, out = take(path, "drafter")
    assert (reply["code"], reply["kept"], reply["dropped"]) == (None, ["drafter"], ["drafter2", "optimizer"])
    found, before = load_file(out), tensors()
    assert sorted(found) == sorted(name for name in before if name.startswith("drafter."))
    assert all(
        torch.equal(found[name], before[name]) and found[name].dtype == before[name].dtype for name in found
    )
    with safe_open(out, "pt") as opened:
        assert opened.metadata() == {"step": "7", "\u00fc": "x"}
    assert reply["wanted_bytes"] == sum(one.numel() * one.element_size() for one in found.values())
    assert out.stat().st_size < reply["wanted_bytes"] + 1000


def test_single_tensors_and_names_behind_a_wrapper_are_found(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    path = tmp_path / "model.safetensors"
    save_file({f"module.{name}": one for name, one in tensors().items()}, path)
    reply, out = take(path, "drafter.fc", "drafter2.x")
    assert reply["code"] is None
    assert sorted(load_file(out)) == ["module.drafter.fc.weight", "module.drafter2.x"]


@pytest.mark.parametrize("keys", [["nothing"], [""], ["drafter", "drafter.nothing"]])
def test_a_name_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path, keys: list[str]) -> None:
    reply, out = take(saved(tmp_path / "model.safetensors"), *keys)
    assert (reply["code"], sorted(reply["keys"])) == ("missing-key", ["drafter", "drafter2", "optimizer"])
    assert not out.exists()


def test_it_goes_on_at_any_byte(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.safetensors")
    layout = lay_out(str(path), ["drafter"])
    whole = sent(layout, path)
    assert len(whole) == layout.size
    for begin in range(0, layout.size, 97):
        assert sent(lay_out(str(path), ["drafter"]), path, begin) == whole[begin:]


def test_what_changes_after_it_was_planned_is_found(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.safetensors")
    layout = lay_out(str(path), ["drafter"])
    before = path.stat()
    raw = bytearray(path.read_bytes())
    piece = next(one for one in layout.pieces if one.name == "drafter.fc.weight")
    raw[piece.offset + 9] ^= 1
    with path.open("r+b") as file:  # in place, and its time put back
        file.write(raw)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(stream.CrcError, match=r"drafter\.fc\.weight"):
        sent(layout, path)


def test_what_was_read_for_the_plan_is_not_read_for_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path / "model.safetensors")
    plan = stream.plan(str(path), ["drafter"])
    monkeypatch.setattr(crcs.Sums, "of", lambda *_: pytest.fail("it was read again"))
    again = stream.plan(str(path), ["drafter"], summed=plan["summed"])
    assert again["digest"] == plan["digest"]
    monkeypatch.undo()
    wrong = dict(plan["summed"], **{"drafter.wide": 1})
    assert stream.plan(str(path), ["drafter"], summed=wrong)["digest"] != plan["digest"]


def test_a_truncated_one_is_incomplete(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.safetensors")
    os.truncate(path, path.stat().st_size - 1)
    assert take(path, "drafter")[0]["code"] == "incomplete"
