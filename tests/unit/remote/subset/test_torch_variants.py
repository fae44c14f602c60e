"""Everything that people save beside or as weights, by torch of today and of years ago: equal after the selection."""

from __future__ import annotations

import collections
import dataclasses
import io
import struct
import subprocess
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import checkpoint_reader
from subset import local_copy
from tests.unit.remote.subset.test_torch_layout import save


def taken(path: Path, keys: list[str], **more: Any) -> dict[str, Any]:
    """Return what torch's safe loader makes of the selection, and hold mapped and computed places against that."""
    import torch

    out = path.with_name("out.pt")
    reply = local_copy.copy(str(path), str(out), keys, True, None, **more)
    assert reply["code"] is None, reply
    assert zipfile.ZipFile(out).testzip() is None
    assert checkpoint_reader.check(str(out))["code"] is None
    found: dict[str, Any] = torch.load(out, weights_only=True)
    torch.load(out, weights_only=True, mmap=True)
    return found


def same(one: Any, other: Any) -> bool:
    """Whether two tensors hold the same bits in the same way."""
    import torch

    if one.layout != torch.strided:
        return one.layout == other.layout and same(one.to_dense(), other.to_dense())
    if one.is_quantized:
        return bool(torch.equal(one, other) and one.qscheme() == other.qscheme())
    facts = [
        (t.dtype, t.shape, t.stride(), t.storage_offset(), t.is_conj(), t.is_neg()) for t in (one, other)
    ]
    bits = [
        t.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8) if t.numel() else t
        for t in (one, other)
    ]
    return facts[0] == facts[1] and type(one) is type(other) and bool(torch.equal(*bits))


def tensors() -> dict[str, Any]:
    import torch

    generator = torch.Generator().manual_seed(0)
    base = torch.randn(30, 20, generator=generator)
    made = {
        str(dtype)[6:]: torch.randn(7, generator=generator).to(dtype)
        for dtype in (
            *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
            *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
            *(torch.complex64, torch.complex128),
        )
    }
    made |= {
        str(dtype)[6:]: torch.arange(5).to(dtype)
        for dtype in (
            *(torch.int8, torch.int16, torch.int32, torch.int64),
            *(torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool),
        )
    }
    made |= {
        "tied": base,
        "head": base,
        "view": base[3:9],
        "transposed": base.t(),
        "strided": base[::2, 1::3],
        "expanded": torch.ones(1).expand(1000),
        "scalar": torch.tensor(1.5),
        "empty": torch.empty(0),
        "empty with a shape": torch.empty(3, 0, 2),
        "conjugated": torch.randn(4, dtype=torch.complex64, generator=generator).conj(),
        "negated": torch.randn(4, dtype=torch.complex64, generator=generator).conj().imag,
        "parameter": torch.nn.Parameter(torch.ones(2, 2)),
        "frozen": torch.nn.Parameter(torch.ones(2), requires_grad=False),
        "buffer": torch.ones(3).requires_grad_(),
        "sparse": torch.eye(4).to_sparse(),
        "channels last": torch.randn(2, 3, 4, 5, generator=generator).to(memory_format=torch.channels_last),
        "one element of much": torch.arange(100_000.0)[7],
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made["csr"] = torch.eye(4).to_sparse_csr()
        made["quantized"] = torch.quantize_per_tensor(torch.ones(4), 0.1, 2, torch.qint8)
        made["by channel"] = torch.quantize_per_channel(
            torch.ones(2, 3), torch.tensor([0.1, 0.2]), torch.tensor([0, 1]), 0, torch.quint8
        )
    return made


@pytest.mark.filterwarnings("ignore:Sparse CSR", "ignore:.*torch.quantize", "ignore:TypedStorage")
@pytest.mark.parametrize("crc", [True, False])
def test_every_kind_of_tensor_comes_out_as_it_was(tmp_path: Path, strict: None, crc: bool) -> None:
    from torch.utils.serialization import config

    saved, before = tensors(), config.save.compute_crc32
    config.save.compute_crc32 = crc
    try:
        path = save(
            tmp_path / "c.pt", {"optimizer": {"m": saved["head"].clone()}, "drafter": saved, "step": 1}
        )
    finally:
        config.save.compute_crc32 = before
    found = taken(path, ["drafter", "step"])["drafter"]
    assert list(found) == list(saved)
    assert [name for name in saved if not same(found[name], saved[name])] == []
    assert found["frozen"].requires_grad is False
    assert found["buffer"].requires_grad is True
    shared = {
        found[name].untyped_storage().data_ptr() for name in ("tied", "head", "view", "transposed", "strided")
    }
    assert len(shared) == 1


def test_a_state_dict_keeps_its_order_and_its_metadata(tmp_path: Path, strict: None) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 3))
    model[2].weight = torch.nn.Parameter(model[0].weight.t())
    state = model.state_dict()
    found = taken(save(tmp_path / "c.pt", {"model": state, "x": torch.ones(9)}), ["model"])["model"]
    assert type(found) is collections.OrderedDict
    assert found._metadata == state._metadata
    assert list(found) == list(state)
    assert all(same(found[name], state[name]) for name in state)


@dataclasses.dataclass
class Config:
    lr: float = 1e-3
    layers: tuple[int, ...] = (1, 2)


def test_arguments_and_small_things_come_as_plain_data(tmp_path: Path, strict: None) -> None:
    import argparse

    import numpy
    import torch

    saved = {
        "drafter": {"w": torch.ones(2)},
        "namespace": argparse.Namespace(lr=6e-4, path=Path("/x/y"), nested=argparse.Namespace(a=[1, {2}])),
        "dataclass": Config(),
        "default": collections.defaultdict(list, a=[1]),
        "ordered": collections.OrderedDict(b=2),
        "numbers": [True, None, -(2**63), 1.5, float("inf"), "\u00fc\ud800"],
        "dtype": torch.bfloat16,
        "device": torch.device("cuda", 1),
        "size": torch.Size([2, 3]),
    }
    found = taken(save(tmp_path / "c.pt", saved), list(saved))
    assert found["namespace"] == {"lr": 6e-4, "path": "/x/y", "nested": {"a": [1, [2]]}}
    assert found["dataclass"]["fields"] == {"lr": 1e-3, "layers": [1, 2]}
    assert found["default"] == {"a": [1]}
    assert found["ordered"] == {"b": 2}
    assert found["numbers"] == saved["numbers"]
    assert (found["dtype"], found["device"], found["size"]) == ("torch.bfloat16", "cuda:1", [2, 3])
    numpy_things = {
        "drafter": {"w": torch.ones(2)},
        "best": numpy.float64(1.5),
        "state": numpy.random.get_state(),
    }
    path = save(tmp_path / "n.pt", numpy_things)
    assert local_copy.copy(str(path), str(tmp_path / "n2.pt"), None, False, None)["code"] is None
    found = torch.load(tmp_path / "n2.pt", weights_only=True)
    assert torch.equal(found["drafter"]["w"], torch.ones(2))


class Doubled(__import__("torch").Tensor):  # type: ignore[misc]
    """A tensor of somebody's own class."""


def test_a_tensor_of_somebodys_own_class_is_refused_by_its_name(tmp_path: Path) -> None:
    import torch

    path = save(
        tmp_path / "c.pt", {"drafter": {"w": torch.ones(2).as_subclass(Doubled)}, "ok": torch.ones(1)}
    )
    reply = local_copy.copy(str(path), str(tmp_path / "out.pt"), ["drafter"], True, None)
    assert (reply["code"], reply["unsafe"]) == ("unsafe", [f"{__name__}.Doubled"])
    assert taken(path, ["ok"])["ok"] == torch.ones(1)


def test_a_tensor_with_attributes_of_its_own_keeps_its_bits(tmp_path: Path, strict: None) -> None:
    import torch

    weights = torch.arange(4.0)
    weights.scale = 2.0  # type: ignore[attr-defined]
    found = taken(save(tmp_path / "c.pt", {"drafter": {"w": weights}}), ["drafter"])["drafter"]
    assert torch.equal(found["w"], weights)
    assert found["w"].scale == 2.0


OldNames = Callable[[str], bool]


def rewritten(path: Path, keep: Callable[[str], bool], *, descriptors: bool, top: str = "archive") -> Path:
    """Write the records of a torch file as an older torch did: fewer of them, sizes in the local headers or behind."""
    whole, out, directory = zipfile.ZipFile(path), io.BytesIO(), []
    for info in whole.infolist():
        name = top + info.filename[info.filename.index("/") :]
        if not keep(name[len(top) + 1 :]):
            continue
        data = whole.read(info.filename)
        at, crc, size = out.tell(), zlib.crc32(data), len(data)
        flags = 0x0808 if descriptors else 0
        known = (0, 0, 0) if descriptors else (crc, size, size)
        padding = -(at + 30 + len(name) + 4) % 64
        out.write(struct.pack("<4s5H3L2H", b"PK\3\4", 0, flags, 0, 0, 0, *known, len(name), padding + 4))
        out.write(name.encode() + b"FB" + struct.pack("<H", padding) + b"Z" * padding + data)
        if descriptors:
            out.write(struct.pack("<4s3L", b"PK\7\10", crc, size, size))
        directory.append((name.encode(), flags, crc, size, at))
    start = out.tell()
    for raw, flags, crc, size, at in directory:
        head = struct.pack(
            "<4s6H3L5H2L", b"PK\1\2", 0, 0, flags, 0, 0, 0, crc, size, size, len(raw), 0, 0, 0, 0, 0, at
        )
        out.write(head + raw)
    count, length = len(directory), out.tell() - start
    out.write(struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, length, start, 0))
    path.write_bytes(out.getvalue())
    return path


AGES: dict[str, tuple[OldNames, bool]] = {
    "torch 1.6: no byte order, no numbers of formats": (
        lambda n: n[:5] == "data/" or n in ("data.pkl", "version"),
        True,
    ),
    "torch 2.0: a byte order": (lambda n: not n.startswith("."), True),
    "torch 2.1: a serialization id": (lambda n: not n.startswith(".") or "serialization_id" in n, True),
    "by another writer of zips": (lambda n: not n.startswith("."), False),
}


@pytest.mark.parametrize("age", AGES)
def test_files_of_older_versions_are_read(tmp_path: Path, strict: None, age: str) -> None:
    import torch

    weights = {"w": torch.randn(200, 3), "v": torch.randn(5).to(torch.bfloat16), "e": torch.empty(0)}
    path = save(tmp_path / "c.pt", {"optimizer": torch.ones(99), "drafter": weights, "step": 3})
    keep, descriptors = AGES[age]
    rewritten(path, keep, descriptors=descriptors)
    assert checkpoint_reader.check(str(path))["code"] is None
    assert torch.load(path, weights_only=True)["step"] == 3
    found = taken(path, ["drafter", "step"])
    assert found["step"] == 3
    assert all(same(found["drafter"][name], weights[name]) for name in weights)


def test_the_byte_order_that_a_file_was_written_in_is_kept(tmp_path: Path) -> None:
    import torch

    path = save(tmp_path / "c.pt", {"drafter": {"w": torch.tensor([1.0, 2.0])}, "x": torch.ones(1)})
    whole, out = zipfile.ZipFile(path), io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in whole.namelist():
            content = whole.read(name)
            if name.endswith("data/0"):
                content = struct.pack(">2f", 1.0, 2.0)
            archive.writestr(name, b"big" if name.endswith("byteorder") else content)
    path.write_bytes(out.getvalue())
    assert taken(path, ["drafter"])["drafter"]["w"].tolist() == [1.0, 2.0]


@pytest.fixture
def unzip() -> Iterator[str]:
    import shutil

    found = shutil.which("unzip")
    if found is None:
        pytest.skip("no unzip here")
    yield found


def test_unzip_finds_no_fault_in_a_selection(tmp_path: Path, unzip: str) -> None:
    import torch

    taken(save(tmp_path / "c.pt", {"drafter": {"w": torch.ones(300)}, "x": torch.ones(9)}), ["drafter"])
    done = subprocess.run([unzip, "-t", tmp_path / "out.pt"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "No errors detected" in done.stdout
