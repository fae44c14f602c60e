"""Taking keys out of a torch file: what torch loads is equal, and every way of going wrong is found and named."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import checkpoint_cli
import checkpoint_reader
from subset import layout as subset_layout
from subset import local_copy, stream
from subset.lay_out import lay_out

PROGRAM = Path(checkpoint_cli.__file__)


def content() -> dict[str, Any]:
    import torch

    base = torch.randn(300, 200)
    weights = {
        "tied": base,
        "head": base,
        "view": base[10:20].t(),
        "half": torch.randn(65).to(torch.bfloat16),
        "f8": torch.randn(7).to(torch.float8_e4m3fn),
        "u16": torch.arange(5).to(torch.uint16),
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(1.5),
        "flag": torch.tensor([True, False]),
        "parameter": torch.nn.Parameter(torch.ones(2, 2)),
    }
    return {
        "optimizer": {
            "state": {i: {"exp_avg": torch.randn(5000)} for i in range(4)},
            "groups": [{"lr": 1e-3}],
        },
        "drafter": weights,
        "args": argparse.Namespace(lr=6e-4, out=Path("/x/y"), big=2**40, nan=float("nan")),
        "step": 4000,
        "config": {"block_size": 16, 3: "three"},
        "rng": torch.get_rng_state(),
    }


def save(path: Path, saved: Any = None, **more: Any) -> Path:
    import torch

    torch.save(content() if saved is None else saved, path, **more)
    return path


def take(path: Path, *flags: str, keys: str = "drafter,step,config,args") -> tuple[dict[str, Any], Path]:
    """Run `checkpoint_cli.py copy` as a person would."""
    out = path.with_name("out.pt")
    words = [sys.executable, PROGRAM, "copy", path, out, "--keys", keys, *flags]
    done = subprocess.run(words, capture_output=True, check=False, timeout=120)
    assert done.stdout.count(b"\n") == 1, done.stderr.decode()
    reply = json.loads(done.stdout)
    assert done.returncode == (0 if reply["code"] is None else 1)
    assert out.exists() == (reply["code"] is None)
    return reply, out


@pytest.mark.parametrize("mmap", [False, True])
def test_torch_loads_the_selection_safely_with_equal_tensors_strides_views_and_ties(
    tmp_path: Path, strict: None, mmap: bool
) -> None:
    import torch

    path = save(tmp_path / "c.pt")
    before = torch.load(path, weights_only=False)["drafter"]
    reply, out = take(path)
    found = torch.load(out, weights_only=True, mmap=mmap)
    assert list(found) == ["drafter", "args", "step", "config"]
    for name, tensor in before.items():
        one = found["drafter"][name]
        assert torch.equal(
            one.view(torch.uint8) if "8" in name else one, tensor.view(torch.uint8) if "8" in name else tensor
        )
        assert (one.stride(), one.dtype, one.storage_offset()) == (
            tensor.stride(),
            tensor.dtype,
            tensor.storage_offset(),
        )
    weights = found["drafter"]
    assert weights["tied"].data_ptr() == weights["head"].data_ptr()
    assert weights["view"].untyped_storage().data_ptr() == weights["tied"].untyped_storage().data_ptr()
    assert found["config"] == {"block_size": 16, 3: "three"}
    assert found["args"]["out"] == "/x/y"
    assert found["args"]["nan"] != found["args"]["nan"]
    assert reply["wanted_bytes"] < reply["size"] < reply["wanted_bytes"] + 6000


def test_the_selection_is_a_sound_zip(tmp_path: Path) -> None:
    _, out = take(save(tmp_path / "c.pt"))
    assert zipfile.ZipFile(out).testzip() is None
    assert checkpoint_reader.check(str(out))["code"] is None


def test_a_selection_of_a_selection_and_of_a_module_with_prefixes_works(tmp_path: Path, strict: None) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    path = save(tmp_path / "c.pt", {"model": model.state_dict(), "other": torch.ones(100)})
    _, out = take(path, keys="model")
    again, _ = take(out.rename(tmp_path / "once.pt"), keys="model")
    assert again["code"] is None
    found = torch.load(tmp_path / "out.pt", weights_only=True)["model"]
    assert model.load_state_dict(found).missing_keys == []


@pytest.mark.parametrize("kept", [0.2, 0.9, 0.9999])
def test_a_truncated_source_is_refused(tmp_path: Path, kept: float) -> None:
    path = save(tmp_path / "c.pt")
    os.truncate(path, int(path.stat().st_size * kept))
    assert take(path)[0]["code"] == "incomplete"


def test_a_source_that_is_open_for_writing_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "c.pt")
    with path.open("ab"):
        reply, _ = take(path)
    assert (reply["code"], reply["reason"]) == ("incomplete", "open for writing")


def flip(path: Path, record: str) -> None:
    archive = zipfile.ZipFile(path)
    (info,) = [one for one in archive.infolist() if one.filename.endswith("/" + record)]
    with path.open("r+b") as file:
        file.seek(info.header_offset + 26)
        names = file.read(4)
        start = (
            info.header_offset
            + 30
            + int.from_bytes(names[:2], "little")
            + int.from_bytes(names[2:], "little")
        )
        file.seek(start + info.file_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def test_a_bit_flipped_in_a_wanted_storage_is_found_and_its_record_named(tmp_path: Path) -> None:
    path = save(tmp_path / "c.pt")
    flip(path, "data/4")  # the first storages are the optimizer's
    reply, out = take(path)
    assert (reply["code"], reply["reason"]) == ("crc", "record c/data/4 does not have its recorded CRC")
    assert not out.exists()


def test_a_bit_flipped_in_an_unwanted_storage_does_not_matter(tmp_path: Path) -> None:
    path = save(tmp_path / "c.pt")
    flip(path, "data/0")
    assert take(path)[0]["code"] is None


def test_without_recorded_crcs_real_ones_are_made_and_that_is_said(tmp_path: Path) -> None:
    from torch.utils.serialization import config

    before = config.save.compute_crc32
    config.save.compute_crc32 = False
    try:
        path = save(tmp_path / "c.pt")
    finally:
        config.save.compute_crc32 = before
    plan = stream.plan(str(path), ["drafter"])
    assert len(plan["summed"]) == plan["crc_unrecorded"] > 3
    assert stream.plan(str(path), ["drafter"], summed=plan["summed"])["digest"] == plan["digest"]
    _, out = take(path)
    assert zipfile.ZipFile(out).testzip() is None


def test_a_missing_key_is_named_with_those_that_are_there(tmp_path: Path) -> None:
    reply, _ = take(save(tmp_path / "c.pt"), keys="draft_model")
    assert reply["code"] == "missing-key"
    assert reply["keys"] == ["optimizer", "drafter", "args", "step", "config", "rng"]


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/hostkit-canary",)


def test_a_global_that_runs_something_is_dropped_where_unwanted_and_refused_where_wanted(
    tmp_path: Path,
) -> None:
    import torch

    path = save(
        tmp_path / "c.pt",
        {"w": {"a": torch.ones(2)}, "evil": Evil(), "both": {"a": torch.ones(2), "e": Evil()}},
    )
    assert take(path, keys="w")[0]["code"] is None
    (tmp_path / "out.pt").unlink()
    assert take(path, keys="evil")[0]["code"] == "layout"
    reply, _ = take(path, keys="both")
    assert (reply["code"], reply["unsafe"]) == ("unsafe", ["posix.system"])
    assert stream.plan(str(path), ["w"])["dropped"] == ["evil", "both"]


def test_a_format_without_a_directory_is_refused_by_name(tmp_path: Path) -> None:
    path = save(tmp_path / "c.pt", _use_new_zipfile_serialization=False)
    os.utime(path, (1, 1))
    reply, _ = take(path)
    assert (reply["code"], "torch-legacy" in reply["reason"]) == ("layout", True)


@pytest.mark.parametrize("act", ["renamed over", "removed"])
def test_a_source_rotated_away_while_it_is_read_is_whole_and_said_to_be_gone(
    tmp_path: Path, act: str
) -> None:
    path = save(tmp_path / "c.pt")
    layout = lay_out(str(path), ["drafter"])
    whole = sent(layout, path)

    def replace_then_take(data: Any) -> None:
        if not out and act == "removed":
            path.unlink()
        elif not out:
            (tmp_path / "new.pt").write_bytes(b"another")
            (tmp_path / "new.pt").rename(path)
        out.append(bytes(data))

    out: list[bytes] = []
    told = stream.send(layout, str(path), replace_then_take)
    assert told["replaced"] is True
    assert b"".join(out) == whole


def sent(layout: Any, path: Path, begin: int = 0) -> bytes:
    out: list[bytes] = []
    stream.send(layout, str(path), lambda data: out.append(bytes(data)), begin)
    return b"".join(out)


@pytest.mark.parametrize("act", ["its time", "in place", "truncating"])
def test_a_source_that_is_written_while_it_is_read_is_refused(tmp_path: Path, act: str) -> None:
    path = save(tmp_path / "c.pt")
    os.utime(path, (2, 2))  # so that a write shows, however coarse the clock of the file system
    layout = lay_out(str(path), ["drafter"])

    def spoil(_data: Any) -> None:
        if act == "truncating":
            os.truncate(path, 100)
        elif act == "in place":
            with path.open("r+b") as file:
                file.write(bytes(path.stat().st_size))
        else:
            os.utime(path, (1, 1))

    with pytest.raises(subset_layout.SelectError, match="written while it was read"):
        stream.send(layout, str(path), spoil)


def test_it_goes_on_at_any_byte_and_is_the_same_to_the_last(tmp_path: Path) -> None:
    path = save(tmp_path / "c.pt")
    layout = lay_out(str(path), ["drafter", "step"])
    whole = sent(layout, path)
    assert len(whole) == layout.size
    starts = {one.start for one in layout.pieces} | {one.start + one.size // 2 for one in layout.pieces}
    for begin in sorted(starts | {0, 1, layout.size - 1, layout.size}):
        assert sent(lay_out(str(path), ["drafter", "step"]), path, begin) == whole[begin:]


def test_stream_and_plan_agree_on_a_command_line(tmp_path: Path) -> None:
    path = save(tmp_path / "c.pt")
    _, out = take(path, keys="drafter")
    words = [sys.executable, PROGRAM, "stream", path, "--keys", "drafter", "--from", "1000"]
    done = subprocess.run(words, capture_output=True, check=True)
    assert done.stdout == out.read_bytes()[1000:]
    assert json.loads(done.stderr)["code"] is None
    planned = subprocess.run(
        [sys.executable, PROGRAM, "plan", path, "--keys", "drafter"], capture_output=True, check=True
    )
    assert json.loads(planned.stdout)["size"] == out.stat().st_size


def test_a_copy_goes_on_from_its_part_and_a_damaged_part_from_its_last_good_record(tmp_path: Path) -> None:
    path = save(tmp_path / "c.pt")
    _, out = take(path)
    whole = out.read_bytes()
    part = tmp_path / "out.pt.part"
    part.write_bytes(whole[:200_000])
    out.unlink()
    reply, out = take(path)
    assert (reply["resumed_at"], out.read_bytes() == whole) == (200_000, True)
    assert reply["read"] <= len(whole) - 200_000 + (4 << 20)
    # in a record that is all there; in one that is cut, so that only its end shows it; between two records
    for kept, bad, begin in (
        (len(whole) - 500, 150_000, 4_000),
        (200_000, 150_000, 200_000),
        (200_000, 50, 0),
    ):
        damaged = bytearray(whole[:kept])
        damaged[bad] ^= 1
        part.write_bytes(damaged)
        out.unlink()
        reply, out = take(path)
        assert reply["resumed_at"] <= begin
        assert out.read_bytes() == whole


def test_without_room_it_says_so_before_a_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "c.pt")
    full = os.statvfs_result((4096, 4096, 10, 0, 0, 10, 10, 10, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _path: full)
    reply = local_copy.copy(str(path), str(tmp_path / "out.pt"), ["drafter"], True, None)
    assert reply["code"] == "space"
    assert not (tmp_path / "out.pt.part").exists()


def test_a_rate_is_kept(tmp_path: Path) -> None:
    import time

    path = save(tmp_path / "c.pt")
    began = time.monotonic()
    reply = local_copy.copy(str(path), str(tmp_path / "out.pt"), ["drafter"], True, 500_000)
    assert time.monotonic() - began >= 0.9 * reply["read"] / 500_000


def test_what_others_had_in_the_page_cache_stays_and_what_was_pulled_goes(tmp_path: Path) -> None:
    import torch

    from host import page_cache

    path = save(tmp_path / "c.pt", {"a": torch.randn(6_000_000), "b": torch.randn(3_000_000)})
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        ask = page_cache._residency(descriptor)
        if ask(0, 4096) is None:
            pytest.skip("this kernel tells nobody what is in memory")
        size = path.stat().st_size
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        if ask(0, size) > 300:
            pytest.skip("this file system keeps its pages")
        hot = (24 << 20, 4 << 20)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(descriptor, hot[1], hot[0])
        warm = ask(*hot)
        assert local_copy.copy(str(path), str(tmp_path / "out.pt"), ["a", "b"], True, None)["code"] is None
        assert ask(*hot) >= 0.99 * warm
        assert (ask(0, size) - warm) * 4096 <= 16 << 20
    finally:
        os.close(descriptor)


def test_without_a_c_library_to_ask_all_is_read_and_nothing_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from host import process

    path = save(tmp_path / "c.pt", {"a": torch.randn(300_000), "b": torch.randn(9)})
    advised = []
    monkeypatch.setattr(process, "libc", lambda: None)
    monkeypatch.setattr(os, "posix_fadvise", lambda *asked: advised.append(asked[-1]))
    assert local_copy.copy(str(path), str(tmp_path / "out.pt"), ["a"], True, None)["code"] is None
    assert torch.equal(torch.load(tmp_path / "out.pt")["a"], torch.load(path)["a"])
    assert os.POSIX_FADV_WILLNEED in advised
    assert os.POSIX_FADV_DONTNEED not in advised  # it might be the run's


@pytest.mark.slow
def test_a_storage_beyond_four_gigabytes_and_seventy_thousand_records(tmp_path: Path, strict: None) -> None:
    import torch

    big = torch.empty(4_400_000_000, dtype=torch.uint8)
    path = save(tmp_path / "c.pt", {"drafter": {"big": big, "after": torch.ones(3)}, "x": torch.ones(2)})
    del big
    reply, out = take(path, keys="drafter")
    assert reply["code"] is None
    found = torch.load(out, weights_only=True, mmap=True)["drafter"]
    assert found["big"].numel() == 4_400_000_000
    assert torch.equal(found["after"], torch.ones(3))
    path.unlink()
    out.unlink()
    path = save(tmp_path / "m.pt", {"drafter": {str(i): torch.tensor([i]) for i in range(70_000)}})
    reply, out = take(path, keys="drafter")
    found = torch.load(out, weights_only=True)["drafter"]
    assert int(found["69999"]) == 69_999


def test_a_machine_without_memory_is_not_a_checkpoint_that_makes_no_sense() -> None:
    def hungry() -> dict[str, Any]:
        raise MemoryError

    assert stream.guarded(hungry)["code"] == "memory"
