"""Files made to deceive: whatever the bytes, nothing is imported or called, and what comes out is what was saved."""

from __future__ import annotations

import io
import json
import struct
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import checkpoint_reader
from subset import local_copy
from tests.unit.remote.checkpoint.test_completeness_folders import kept_times
from tests.unit.remote.checkpoint.test_inspection import bomb


def content() -> dict[str, Any]:
    import torch

    base = torch.arange(40.0)
    weights = {
        "a": base,
        "b": base[3:9],
        "h": torch.arange(3).to(torch.bfloat16),
        "p": torch.nn.Parameter(torch.ones(2, 2)),
        "e": torch.empty(0, 3),
    }
    moments = {0: {"m": torch.arange(5.0)}}
    return {
        "optimizer": {"state": moments, "lr": [1e-3]},
        "drafter": weights,
        "step": 5,
        "config": {"x": 1.5},
    }


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    import torch

    path = tmp_path_factory.mktemp("whole") / "c.pt"
    torch.save(content(), path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spoilt")


def take(folder: Path, data: bytes) -> tuple[dict[str, Any], Path]:
    """Copy the drafter out of these bytes, in a folder where nothing else is left."""
    for name in ("out.pt", "out.pt.part"):
        (folder / name).unlink(missing_ok=True)
    (folder / "c.pt").write_bytes(data)
    reply = local_copy.copy(str(folder / "c.pt"), str(folder / "out.pt"), ["drafter", "step"], True, None)
    json.dumps(reply, allow_nan=False)
    assert (folder / "out.pt").exists() == (reply["code"] is None)
    return reply, folder / "out.pt"


def same(out: Path) -> bool:
    import torch

    found, saved = torch.load(out, weights_only=True), content()
    return (
        found["step"] == 5
        and list(found["drafter"]) == list(saved["drafter"])
        and all(
            torch.equal(one, saved["drafter"][name])
            and one.stride() == saved["drafter"][name].stride()
            and one.dtype == saved["drafter"][name].dtype
            for name, one in found["drafter"].items()
        )
        and found["drafter"]["a"].untyped_storage().data_ptr()
        == found["drafter"]["b"].untyped_storage().data_ptr()
    )


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("flip"), st.integers(0, 1 << 16), st.integers(0, 7)),
        st.tuples(st.just("insert"), st.integers(0, 1 << 16), st.binary(min_size=1, max_size=9)),
        st.tuples(st.just("delete"), st.integers(0, 1 << 16), st.integers(1, 40)),
        st.tuples(st.just("number"), st.integers(0, 1 << 16), st.integers(0, (1 << 32) - 1)),
        st.tuples(st.just("again"), st.integers(0, 1 << 16), st.integers(1, 64)),
        st.tuples(st.just("cut"), st.integers(0, 1 << 16), st.just(0)),
    ),
    min_size=1,
    max_size=3,
)


def changed(data: bytes, changes: list[tuple[str, int, Any]]) -> bytes:
    made = bytearray(data)
    for how, where, what in changes:
        at = where % (len(made) or 1)
        if how == "flip" and made:
            made[at] ^= 1 << what
        elif how == "insert":
            made[at:at] = what
        elif how == "delete":
            del made[at : at + what]
        elif how == "number":
            made[at : at + 4] = struct.pack("<I", what)
        elif how == "again":
            made[at:at] = made[at : at + what]
        elif how == "cut":
            del made[at:]
    return bytes(made)


MANY = settings(
    max_examples=250,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@MANY
@given(changes=CHANGES)
def test_a_file_that_was_changed_anywhere_is_refused_with_a_code_or_comes_out_equal(
    raw: bytes, folder: Path, changes: list[tuple[str, int, Any]]
) -> None:
    reply, out = take(folder, changed(raw, changes))
    assert same(out) if reply["code"] is None else reply["code"] in ("incomplete", "crc", "layout")


@MANY
@given(changes=CHANGES)
def test_a_directory_that_was_changed_is_refused_with_a_code_or_comes_out_equal(
    raw: bytes, folder: Path, changes: list[tuple[str, int, Any]]
) -> None:
    at = raw.index(b"PK\1\2")
    reply, out = take(folder, raw[:at] + changed(raw[at:], changes))
    assert same(out) if reply["code"] is None else reply["code"] in ("incomplete", "crc", "layout")


def packed(raw: bytes, pickle: bytes) -> bytes:
    """Put another pickle in, its CRC right: somebody meant it."""
    whole, out = zipfile.ZipFile(io.BytesIO(raw)), io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in whole.namelist():
            archive.writestr(name, pickle if name.endswith("data.pkl") else whole.read(name))
    return out.getvalue()


def pickle_of(raw: bytes) -> bytes:
    return zipfile.ZipFile(io.BytesIO(raw)).read("c/data.pkl")


@MANY
@given(changes=CHANGES)
def test_any_pickle_is_told_or_refused_and_what_comes_out_needs_no_name_but_torchs(
    raw: bytes, folder: Path, changes: list[tuple[str, int, Any]]
) -> None:
    import torch

    data = packed(raw, changed(pickle_of(raw), changes))
    began = time.process_time()
    reply, out = take(folder, data)
    told = checkpoint_reader.inspect(str(folder / "c.pt"))
    assert time.process_time() - began < 5
    json.dumps(told, allow_nan=False)
    assert told["code"] in (None, "incomplete", "layout")
    if reply["code"] is None:
        unsafe = torch.serialization.get_unsafe_globals_in_checkpoint(out)
        assert unsafe == []


HARM = {
    "GLOBAL": b"cos\nsystem\nX\2\0\0\0id\x85R",
    "STACK_GLOBAL": b"X\2\0\0\0osX\6\0\0\0system\x93X\2\0\0\0id\x85R",
    "INST": b"(X\2\0\0\0idios\nsystem\n",
    "OBJ": b"(cos\nsystem\nX\2\0\0\0ido",
    "NEWOBJ": b"cos\nsystem\nX\2\0\0\0id\x85\x81",
    "NEWOBJ_EX": b"cos\nsystem\nX\2\0\0\0id\x85}\x92",
    "a name with a dot": b"X\2\0\0\0osX\x0f\0\0\0system.__call__\x93X\2\0\0\0id\x85R",
    "a name with a line's end": b"X\x0c\0\0\0os\nsystem\n)R.X\1\0\0\0x\x93)R",
    "getattr of an import": b"c__builtin__\ngetattr\nc__builtin__\n__import__\nX\2\0\0\0os\x85RX\6\0\0\0system\x86R",
    "EXT1": b"\x82\1",
    "EXT2": b"\x83\1\0",
    "EXT4": b"\x84\1\0\0\0",
    "PERSID": b"Pos.system\n",
    "BINPERSID of a call": b"cos\nsystem\nX\2\0\0\0id\x85RQ",
    "BINPERSID of a tuple with a call": b"(X\7\0\0\0storagecos\nsystem\nX\1\0\0\x000X\3\0\0\0cpuK\1tQ",
    "a buffer from outside": b"\x97",
    "BUILD of a global": b"cos\nsystem\n}b",
    "a state that sets an attribute": b"ctorch\nTensor\n)\x81}X\7\0\0\0__dir__cos\nsystem\nsb",
    "the old text opcodes": b"S'id'\n0Vid\n0I1\n0L1L\n0F1.0\n0p1\ng1\n",
    "a call as a key": b"}cos\nsystem\nX\2\0\0\0id\x85RK\1s",
    "a call as the top": b"0cos\nsystem\nX\2\0\0\0id\x85R}",
}
COSTLY = {
    "a memo index of four thousand millions": b"Nr\xff\xff\xff\xff",
    "a million memo entries": b"N" + b"\x94" * 1_000_000,
    "200 thousand lists in each other": b"]" * 200_000 + b"a" * 199_999,
    "200 thousand calls of calls": b"cos\nsystem\n" + b")R" * 200_000,
    "200 thousand references in each other": b"N" + b"Q" * 200_000,
    "200 thousand dictionaries in each other": b"}K\1" * 200_000 + b"N" + b"s" * 200_000,
    "a number of a million digits": b"\x8b" + struct.pack("<I", 500_000) + b"\x7f" * 500_000,
    "a length below nothing": b"\x8b\xff\xff\xff\xff",
    "a text below nothing": b"X\xff\xff\xff\xff",
    "bytes of the size of the world": b"\x8e" + b"\xff" * 8,
    "a text of the size of the world": b"\x8d" + b"\xff" * 8,
    "an old string below nothing": b"T\xff\xff\xff\xff",
    "twelve million empty lists": b"(" + b"]" * 12_000_000 + b"l",
    "a shape of thirty thousand large sizes": (
        b"ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\n"
        b"X\1\0\0\x000X\3\0\0\0cpuK\2tQK\0(" + b"\x8a\x08" + b"\xff" * 7 + b"\x3f"
    )
    + (b"\x8a\x08" + b"\xff" * 7 + b"\x3f") * 30_000
    + b"tK\1\x85tR",
    "a storage of a number of a million digits": (
        b"(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\x000X\3\0\0\0cpu\x8b"
        + struct.pack("<I", 500_000)
        + b"\x7f" * 500_000
        + b"tQ"
    ),
    "a storage whose key is a number of a million digits": (
        b"(X\7\0\0\0storagectorch\nFloatStorage\n\x8b"
        + struct.pack("<I", 500_000)
        + b"\x7f" * 500_000
        + b"X\3\0\0\0cpuK\1tQ"
    ),
    "a key that is a number of a million digits": (
        b"}\x8b" + struct.pack("<I", 500_000) + b"\x7f" * 500_000 + b"K\1s"
    ),
    "a path of a number of a million digits": (
        b"cpathlib\nPosixPath\n\x8b" + struct.pack("<I", 500_000) + b"\x7f" * 500_000 + b"\x85R"
    ),
}


@pytest.fixture
def canary(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have everything that could be imported or called by a pickle fail the test."""
    import builtins
    import importlib
    import os
    import posix

    def never(*_: Any, **__: Any) -> None:
        pytest.fail("it was called")

    imported: list[str] = []
    plain = builtins.__import__

    def watch(name: str, *rest: Any, **more: Any) -> Any:
        imported.append(name)
        return plain(name, *rest, **more)

    monkeypatch.setattr(os, "system", never)
    monkeypatch.setattr(posix, "system", never)
    monkeypatch.setattr(importlib, "import_module", never)
    monkeypatch.setattr(builtins, "__import__", watch)
    yield
    monkeypatch.undo()
    assert not {"torch", "posix", "pathlib", "__builtin__", "torch._utils"} & set(imported)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        *((name, key) for name in HARM for key in ("drafter", "other")),
        *((name, "drafter") for name in COSTLY),
    ],
)
def test_a_pickle_made_to_harm_calls_nothing_and_costs_little(
    raw: bytes, folder: Path, canary: None, name: str, key: str
) -> None:
    import resource

    opcodes = (HARM | COSTLY)[name]
    text = key.encode()
    data = packed(raw, bomb(b"}(X" + struct.pack("<I", len(text)) + text + opcodes + b"X\4\0\0\0stepK\5u"))
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reply, out = take(folder, data)
    told = checkpoint_reader.inspect(str(folder / "c.pt"))
    json.dumps(told, allow_nan=False)
    assert time.process_time() - began < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2 << 20
    assert reply["code"] in ("layout", "unsafe", "missing-key", "incomplete", None)
    if reply["code"] is None:
        assert b"cos\nsystem" not in out.read_bytes()  # as text it may be told: {"object": "os.system"}


def records(raw: bytes) -> list[tuple[str, bytes]]:
    whole = zipfile.ZipFile(io.BytesIO(raw))
    return [(name, whole.read(name)) for name in whole.namelist()]


def archive(entries: list[tuple[str, bytes]], **more: Any) -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name that stands twice is what is wanted here
        with zipfile.ZipFile(out, "w", **more) as made:
            for name, content in entries:
                made.writestr(name, content)
    return out.getvalue()


def renamed(raw: bytes, change: Callable[[str], str]) -> bytes:
    return archive([(change(name), content) for name, content in records(raw)])


def flagged(raw: bytes) -> bytes:
    """Say of every record that it is encrypted."""
    made = bytearray(raw)
    for mark, at in ((b"PK\1\2", 8), (b"PK\3\4", 6)):
        place = made.find(mark)
        while place >= 0:
            made[place + at] |= 1
            place = made.find(mark, place + 4)
    return bytes(made)


def lied(raw: bytes, at: int, value: int, form: str) -> bytes:
    """Change one number in the first entry of the directory."""
    made = bytearray(raw)
    struct.pack_into(form, made, made.index(b"PK\1\2") + at, value)
    return bytes(made)


ZIPS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "bytes before": (lambda raw: b"#!/bin/sh\n" + raw, "incomplete"),
    "a comment after": (lambda raw: raw[:-2] + b"\5\0hello", "incomplete"),
    "a comment that holds an end record": (lambda raw: raw[:-2] + b"\x16\0" + raw[-22:], "incomplete"),
    "an archive after an archive": (lambda raw: raw + raw, "incomplete"),
    "a record twice": (
        lambda raw: archive([*records(raw), ("c/data/0", bytes(160))]),
        "incomplete",
    ),
    "a name in capitals as well": (
        lambda raw: archive([*records(raw), ("c/DATA/0", bytes(160))]),
        "incomplete",
    ),
    "two pickles": (lambda raw: archive([*records(raw), ("d/data.pkl", b"N.")]), "incomplete"),
    "compressed": (lambda raw: archive(records(raw), compression=zipfile.ZIP_DEFLATED), "incomplete"),
    "encrypted": (flagged, "incomplete"),
    "an absolute name": (lambda raw: renamed(raw, lambda name: "/etc/" + name), "incomplete"),
    "a name that climbs": (lambda raw: renamed(raw, lambda name: "../../" + name), "incomplete"),
    "a name that climbs inside": (lambda raw: renamed(raw, lambda name: "c/../../" + name), "incomplete"),
    "a name with a line's end": (lambda raw: renamed(raw, lambda name: "c\n" + name), "incomplete"),
    "a larger size": (lambda raw: lied(raw, 20, 0x7FFFFFFF, "<L"), "incomplete"),
    "two sizes": (lambda raw: lied(raw, 24, 7, "<L"), "incomplete"),
    "a size in an extra field that is not there": (lambda raw: lied(raw, 20, 0xFFFFFFFF, "<L"), "incomplete"),
    "an offset in an extra field that is not there": (
        lambda raw: lied(raw, 42, 0xFFFFFFFF, "<L"),
        "incomplete",
    ),
    "an offset into another record": (lambda raw: lied(raw, 42, 500, "<L"), "incomplete"),
    "a disk of its own": (lambda raw: raw[:-18] + b"\1" + raw[-17:], "incomplete"),
    "more records than there are": (lambda raw: raw[:-66] + b"\xff" * 16 + raw[-50:], "incomplete"),
    "a directory beyond the end": (lambda raw: raw[:-50] + b"\xff" * 8 + raw[-42:], "incomplete"),
}


@pytest.mark.parametrize("name", ZIPS)
def test_an_archive_that_lies_is_refused(raw: bytes, folder: Path, name: str) -> None:
    make, code = ZIPS[name]
    reply, _ = take(folder, make(raw))
    assert reply["code"] == code, reply
    seen = checkpoint_reader.check(str(folder / "c.pt"))
    assert (seen["complete"], seen["code"]) == (False, "incomplete")


def test_records_that_overlap_are_refused(raw: bytes, folder: Path) -> None:
    made = bytearray(raw)
    entries = [at for at in range(len(made)) if made[at : at + 4] == b"PK\1\2"]
    for at in entries[5:7]:  # two storages in one place
        made[at + 42 : at + 46] = made[entries[5] + 42 : entries[5] + 46]
    assert take(folder, bytes(made))[0]["code"] == "incomplete"


def test_a_file_of_zip_directory_alone_costs_no_memory(folder: Path) -> None:
    path = folder / "many.pt"
    entry = b"PK\1\2" + bytes(24) + struct.pack("<H", 1) + bytes(16) + b"x"
    count = (17 << 20) // len(entry)
    raw = entry * count
    end = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 0, 45, 0, 0, count, count, len(raw), 4)
    end += struct.pack("<4sLQL", b"PK\6\7", 0, 4 + len(raw), 1)
    path.write_bytes(b"PK\3\4" + raw + end + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 65535, 65535, 0, 0, 0))
    seen = checkpoint_reader.check(str(path))
    assert "longer than the" in seen["reason"]


def test_the_second_of_two_values_of_one_key_is_the_one_as_for_python(raw: bytes, folder: Path) -> None:
    pickle = bomb(b"}(X\7\0\0\0drafterK\1X\4\0\0\0stepK\4X\4\0\0\0stepK\5u")
    (folder / "c.pt").write_bytes(packed(raw, pickle))
    assert checkpoint_reader.inspect(str(folder / "c.pt"))["step"] == 5


def test_a_file_changed_without_a_trace_between_two_reads_is_found_by_its_crc(
    raw: bytes, folder: Path
) -> None:
    path = folder / "c.pt"
    path.write_bytes(raw)
    at = raw.index(struct.pack("<f", 17.0))
    kept_times(path, raw[:at] + struct.pack("<f", 18.0) + raw[at + 4 :])
    assert take(folder, path.read_bytes())[0]["code"] == "crc"
