"""Reading checkpoints as symbols: what they hold is told, and nothing in them is ever imported or called."""

from __future__ import annotations

import argparse
import builtins
import collections
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import checkpoint_reader
from checkpoint import pickle_reader
from checkpoint.pickle_reader import PickleError

REMOTE = Path(checkpoint_reader.__file__).parent


def save(path: Path, content: Any, **more: Any) -> Path:
    import torch

    torch.save(content, path, **more)
    return path


def inspect(path: Path, **more: Any) -> dict[str, Any]:
    reply: dict[str, Any] = checkpoint_reader.serve({"op": "inspect", "path": str(path), **more})
    return reply


def rewritten(path: Path, pickle_bytes: bytes) -> Path:
    """Put another pickle in a torch file, as somebody who means harm would."""
    whole = zipfile.ZipFile(path)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in whole.namelist():
            archive.writestr(name, pickle_bytes if name.endswith("data.pkl") else whole.read(name))
    path.write_bytes(out.getvalue())
    return path


def checkpoint() -> dict[str, Any]:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(4)).sum().backward()
    optimizer.step()
    return {
        "drafter": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": 4000,
        "args": argparse.Namespace(lr=6e-4, out=Path("/x/y"), seeds={1}, none=None, nan=float("nan")),
        "config": {"block_size": 16, "dflash_config": {"target_layer_ids": [1, 2]}, "dtype": torch.bfloat16},
        "rng": torch.get_rng_state(),
    }


@pytest.mark.parametrize("legacy", [False, True])
def test_keys_tensors_and_metadata_are_told(tmp_path: Path, legacy: bool) -> None:
    content = checkpoint()
    path = save(tmp_path / "c.pt", content, _use_new_zipfile_serialization=not legacy)
    reply = inspect(path)
    assert (reply["code"], reply["reason"], reply["complete"], reply["step"]) == (None, None, True, 4000)
    assert [entry["key"] for entry in reply["top"]] == list(content)
    told = {tuple(one["path"]): one for one in reply["tensors"]}
    for name, tensor in content["drafter"].items():
        one = told["drafter", name]
        assert one["shape"] == list(tensor.shape)
        assert one["stride"] == list(tensor.stride())
        assert one["dtype"] == "float32"
        assert one["bytes"] == tensor.numel() * 4
    assert ("optimizer", "state", "0", "exp_avg") in told
    assert reply["metadata"]["config"] == {
        "block_size": 16,
        "dflash_config": {"target_layer_ids": [1, 2]},
        "dtype": "torch.bfloat16",
    }
    assert reply["metadata"]["args"] == {"lr": 6e-4, "out": "/x/y", "seeds": [1], "none": None, "nan": "nan"}
    assert reply["globals"] == ["argparse.Namespace", "pathlib.PosixPath"]
    json.dumps(reply, allow_nan=False)


def test_only_the_wanted_tensors_are_told_and_all_are_counted(tmp_path: Path) -> None:
    reply = inspect(save(tmp_path / "c.pt", checkpoint()), weights=["drafter"])
    assert {one["path"][0] for one in reply["tensors"]} == {"drafter"}
    entries = {entry["key"]: entry for entry in reply["top"]}
    assert entries["optimizer"]["tensors"] == 12
    assert entries["drafter"]["bytes"] == sum(one["bytes"] for one in reply["tensors"])


def test_every_dtype_view_tie_and_kind_of_tensor_is_told(tmp_path: Path) -> None:
    import torch

    base = torch.arange(24.0)
    names = (
        "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64 uint16 float8_e4m3fn"
    )
    content: dict[str, Any] = {name: torch.zeros(2, 3).to(getattr(torch, name)) for name in names.split()}
    content |= {
        "view": base[4:12].reshape(2, 4).t(),
        "tied": base,
        "parameter": torch.nn.Parameter(torch.ones(3)),
        "scalar": torch.tensor(7.0),
    }
    reply = inspect(save(tmp_path / "c.pt", content))
    told = {one["path"][0]: one for one in reply["tensors"]}
    assert {name: told[name]["dtype"] for name in names.split()} == {name: name for name in names.split()}
    for name, tensor in content.items():
        assert told[name]["shape"] == list(tensor.shape)
        assert told[name]["bytes"] == tensor.numel() * tensor.element_size()
        assert told[name]["stride"] == list(tensor.stride())
    assert told["view"]["storage"] == told["tied"]["storage"]
    assert told["view"]["storage_bytes"] == 96


@pytest.mark.parametrize("make", [lambda torch: torch.tensor(4000), lambda torch: 4000, lambda torch: "4000"])
def test_a_step_is_read_however_it_was_written(tmp_path: Path, make: Any) -> None:
    import torch

    assert inspect(save(tmp_path / "c.pt", {"w": torch.ones(2), "global_step": make(torch)}))["step"] == 4000


def test_a_bare_tensor_and_a_bare_module_dictionary_are_read(tmp_path: Path) -> None:
    import torch

    reply = inspect(save(tmp_path / "t.pt", torch.ones(3)))
    assert [(one["path"], one["shape"]) for one in reply["tensors"]] == [([], [3])]
    assert reply["step"] is None


@pytest.mark.timeout(60)
@pytest.mark.parametrize("beside", ["a fifo", "nested to hurt"])
def test_a_config_that_cannot_be_read_is_none_and_keeps_nobody_waiting(tmp_path: Path, beside: str) -> None:
    import torch
    from safetensors.torch import save_file

    save_file({"w": torch.ones(2)}, tmp_path / "model.safetensors")
    if beside == "a fifo":
        os.mkfifo(tmp_path / "config.json")
    else:
        (tmp_path / "config.json").write_text("[" * 100_000)
    reply = inspect(tmp_path / "model.safetensors")
    assert (reply["code"], reply["metadata"].get("config")) == (None, None)


def test_safetensors_and_the_config_beside_them_are_read(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    folder = tmp_path / "step_7"
    folder.mkdir()
    save_file(
        {"fc.weight": torch.ones(2, 3, dtype=torch.bfloat16)}, folder / "model.safetensors", {"step": "7"}
    )
    (folder / "config.json").write_text('{"block_size": 16}')
    for path in (folder, folder / "model.safetensors"):
        reply = inspect(path)
        (one,) = reply["tensors"]
        assert (one["path"], one["shape"], one["dtype"]) == (["fc.weight"], [2, 3], "bfloat16")
        assert reply["step"] == 7
        assert reply["metadata"]["config"] == {"block_size": 16}


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/hostkit-canary",)


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_global_that_would_run_a_command_is_only_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int
) -> None:
    import torch

    path = save(tmp_path / "c.pt", {"w": torch.ones(2), "evil": Evil()}, pickle_protocol=protocol)
    imported: list[str] = []
    plain = builtins.__import__

    def watch(name: str, *rest: Any, **more: Any) -> Any:
        imported.append(name)
        return plain(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", watch)
    monkeypatch.setattr(os, "system", lambda _command: pytest.fail("it was called"))
    reply = inspect(path)
    monkeypatch.undo()
    assert reply["globals"] == ["posix.system"]
    assert reply["metadata"]["evil"] == {"object": "posix.system"}
    assert not {"posix", "torch", "argparse"} & set(imported)


def bomb(opcodes: bytes) -> bytes:
    return b"\x80\x02" + opcodes + b"."


BOMBS = {
    "a memo index of four thousand millions": (bomb(b"}r\xff\xff\xff\xff"), None),
    "200 thousand lists in each other": (
        bomb(b"}X\x01\0\0\0a" + b"]" * 200_000 + b"a" * 199_999 + b"s"),
        "nested",
    ),
    "200 thousand tuples in each other": (bomb(b"}X\x01\0\0\0a" + b")" + b"\x85" * 200_000 + b"s"), "nested"),
    "a key of 200 thousand tuples": (bomb(b"}" + b")" + b"\x85" * 200_000 + b"K\x01s"), None),
    "a text longer than the file": (bomb(b"X\xff\xff\xff\x7fabc"), "cut short"),
    "a number of a million digits": (
        bomb(b"}X\x01\0\0\0a\x8b" + struct.pack("<I", 500_000) + b"\x7f" * 500_000 + b"s"),
        None,
    ),
    "an unknown opcode": (bomb(b"\xff"), "opcode 0xff"),
    "an end without a value": (bomb(b""), "cut short or damaged"),
    "a mark for a value": (bomb(b"("), "mark"),
    "a newer protocol": (b"\x80\x09N.", "newer"),
    "a storage that is none": (bomb(b"}X\x01\0\0\0aK\x01Qs"), "no storage"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_pickle_made_to_hurt_is_refused_or_read_in_bounded_time_and_memory(
    tmp_path: Path, name: str
) -> None:
    import torch

    made, said = BOMBS[name]
    path = rewritten(save(tmp_path / "c.pt", {"w": torch.ones(2)}), made)
    limit = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29)); sys.argv[1:] = "
    run = f"['inspect', {str(path)!r}]; sys.path.insert(0, {str(REMOTE)!r}); import checkpoint_cli"
    code = limit + run + "; sys.exit(checkpoint_cli.main(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    reply = json.loads(done.stdout)
    if said is None:
        assert reply["code"] is None, reply["reason"]
    else:
        assert reply["code"] in ("layout", "incomplete")
        assert said in reply["reason"]


def test_a_tree_that_doubles_itself_is_refused_after_a_bounded_walk(tmp_path: Path) -> None:
    import torch

    doubled = b"]q\0"
    for level in range(40):
        doubled += b"](h" + bytes([level]) + b"h" + bytes([level]) + b"eq" + bytes([level + 1])
    path = rewritten(save(tmp_path / "c.pt", {"w": torch.ones(2)}), bomb(b"}X\x01\0\0\0a" + doubled + b"s"))
    reply = inspect(path)
    assert reply["code"] == "layout"


# lists of a hundred thousand times the same: it itself, another such list, a tensor, a number
TENSOR = (
    b"ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\n"
    b"X\1\0\0\x000X\3\0\0\0cpuK\2tQK\0K\2\x85K\1\x85tR"
)


def many_of_many(first: bytes, levels: int) -> bytes:
    lists = b"".join(b"](" + b"h%c" % level * 100_000 + b"eq%c0" % (level + 1) for level in range(levels))
    return first + b"q\x000" + lists + b"h%c" % levels


MANY = {
    "itself": (b"]q\0(" + b"h\0" * 100_000 + b"e", "part of itself"),
    "itself, one by one": (b"]q\0" + b"h\0a" * 100_000, "part of itself"),
    "lists of lists": (many_of_many(b"]", 9), None),
    "lists of lists of a tensor": (many_of_many(TENSOR, 2), "too many parts"),
}


@pytest.mark.parametrize("name", MANY)
def test_a_pickle_that_is_a_part_of_itself_is_refused_in_little_time_and_memory(
    tmp_path: Path, name: str
) -> None:
    import torch

    opcodes, said = MANY[name]
    path = rewritten(save(tmp_path / "c.pt", {"w": torch.ones(2)}), bomb(b"}X\x01\0\0\0a" + opcodes + b"s"))
    code = (
        "import resource, sys, time; sys.path.insert(0, sys.argv[1]); import json, checkpoint_reader; "
        "resource.setrlimit(resource.RLIMIT_CPU, (5, 5)); reply = checkpoint_reader.inspect(sys.argv[2]); "
        "print(json.dumps([reply['code'], reply['reason'], "
        "resource.getrusage(resource.RUSAGE_SELF).ru_utime, open('/proc/self/status').read()]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(REMOTE), str(path)], capture_output=True, timeout=60, check=True
    )
    answer, reason, seconds, status = json.loads(done.stdout)
    assert (answer, said in (reason or "")) == ("layout", True) if said else answer is None, reason
    assert seconds < 4
    assert int(status.partition("VmHWM:")[2].split()[0]) < 200_000


def test_a_pickle_that_is_too_large_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickle_reader, "MAX_BYTES", 100)
    with pytest.raises(PickleError, match="more than the 100"):
        pickle_reader.Reader(b"\x80\x02" + b"N0" * 100 + b"N.")


def test_the_reader_agrees_with_the_stock_one_on_plain_data() -> None:
    plain = {
        "a": [1, -1, 2**40, -(2**70), 1.5, None, True, "ü", b"x" * 300],
        "b": (1, (2, 3), ()),
        "c": {"d": []},
    }
    for protocol in (2, 3, 4, 5):
        tree = pickle_reader.Reader(pickle.dumps(plain, protocol)).load()
        assert tree.get("b") == plain["b"]
        assert tree.get("c").get("d") == []
        if protocol > 2:  # protocol 2 writes bytes as a call of _codecs.encode
            assert tree.get("a") == plain["a"]


def test_old_instances_sets_and_ordered_dictionaries_are_symbols() -> None:
    tree = pickle_reader.Reader(b"\x80\x02(iargparse\nNamespace\n.").load()
    assert str(tree.function) == "argparse.Namespace"
    made = pickle_reader.Reader(pickle.dumps(collections.OrderedDict(a=1), 2)).load()
    assert made.pairs == [("a", 1)]
    assert pickle_reader.Reader(pickle.dumps({1, 2}, 4)).load().items == [1, 2]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda raw: raw.replace(b"c/data/0", b"c/data/7"), "no record|is missing"),
        (lambda raw: raw[:300] + b"\0" * 40 + raw[340:], "CRC|damaged"),
    ],
)
def test_a_damaged_archive_is_incomplete_with_the_record_named(
    tmp_path: Path, change: Any, said: str
) -> None:
    import re

    import torch

    path = save(tmp_path / "c.pt", {"w": torch.ones(200), "v": torch.ones(100)})
    path.write_bytes(change(path.read_bytes()))
    reply = inspect(path)
    assert (reply["complete"], reply["code"]) == (False, "incomplete")
    assert re.search(said, reply["reason"]), reply["reason"]


def test_a_legacy_file_that_was_cut_is_found_by_the_sizes_of_its_storages(tmp_path: Path) -> None:
    import torch

    path = save(tmp_path / "c.pt", {"w": torch.ones(2000)}, _use_new_zipfile_serialization=False)
    assert checkpoint_reader.check(str(path))["complete"] is True
    os.truncate(path, path.stat().st_size - 100)
    reply = checkpoint_reader.check(str(path))
    assert (reply["complete"], reply["code"]) == (False, "incomplete")
    assert "its storages need" in reply["reason"]


def test_it_works_by_itself_from_a_command_line(tmp_path: Path) -> None:
    import torch

    path = save(tmp_path / "c.pt", {"w": torch.ones(2)})
    done = subprocess.run(
        [sys.executable, REMOTE / "checkpoint_cli.py", "check", path], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout.count(b"\n")) == (0, 1)
    os.truncate(path, 200)
    done = subprocess.run(
        [sys.executable, REMOTE / "checkpoint_cli.py", "check", path], capture_output=True, check=False
    )
    assert done.returncode == 1
    assert json.loads(done.stdout)["code"] == "incomplete"
    done = subprocess.run([sys.executable, REMOTE / "checkpoint_cli.py"], capture_output=True, check=False)
    assert done.returncode == 64


def test_a_file_that_is_not_there_has_vanished(tmp_path: Path) -> None:
    assert inspect(tmp_path / "none.pt")["reason"] == "vanished"


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_distributed_checkpoint_is_recognised(tmp_path: Path) -> None:
    import torch
    import torch.distributed.checkpoint as dcp

    folder = tmp_path / "step_5"
    dcp.save({"w": torch.ones(4), "step": 5}, checkpoint_id=folder, no_dist=True)
    reply = inspect(folder)
    assert (reply["format"], reply["complete"], reply["code"]) == ("dcp", True, None)
