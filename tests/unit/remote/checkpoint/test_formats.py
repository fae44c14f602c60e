"""Files that lie about themselves: headers, lengths and directories that are not to be believed, other formats."""

from __future__ import annotations

import json
import os
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from checkpoint import completeness
from tests.unit.remote.checkpoint.test_completeness import look, old, reason, torch_file

DEEP = b'{"a":' * 50_000 + b"1" + b"}" * 50_000


@pytest.mark.parametrize(
    "header",
    [
        DEEP,
        b'{"a": {"data_offsets": [0, 1, 2]}}',
        b'{"a": {"data_offsets": [0, "x"]}}',
        b'{"a": {"data_offsets": [0, null]}}',
        b'{"a": {"data_offsets": [0, Infinity]}}',
        b'{"a": {"data_offsets": "01"}}',
        b"{" + bytes(64),
    ],
    ids=["deep", "three", "text", "null", "infinite", "string", "zeros"],
)
def test_a_header_that_is_garbage_makes_that_checkpoint_damaged_and_no_other(
    tmp_path: Path, header: bytes
) -> None:
    torch_file(tmp_path / "step_1.pt")
    (tmp_path / "step_2.pt").write_bytes(struct.pack("<Q", len(header)) + header)
    seen = completeness.candidates(str(tmp_path), "step_{step}.pt")
    assert [one["complete"] for one in seen] == [True, False]
    assert seen[1]["reason"] == "its header is no safetensors header"


def test_a_record_whose_extra_field_is_longer_than_the_archive_is_damaged(tmp_path: Path) -> None:
    content = bytearray(torch_file(tmp_path / "checkpoint.pt").read_bytes())
    at = content.rfind(b"PK\1\2")
    name_length = struct.unpack_from("<H", content, at + 28)[0]
    content[at + 46 + name_length : at + 46 + name_length] = struct.pack("<2H", 1, 65535)
    struct.pack_into("<H", content, at + 30, struct.unpack_from("<H", content, at + 30)[0] + 4)
    end = content.rfind(b"PK\5\6")
    struct.pack_into("<L", content, end + 12, struct.unpack_from("<L", content, end + 12)[0] + 4)
    if content[end - 20 : end - 16] == b"PK\6\7":  # torch writes the zip64 records as well
        struct.pack_into("<Q", content, end - 12, struct.unpack_from("<Q", content, end - 12)[0] + 4)
        struct.pack_into("<Q", content, end - 36, struct.unpack_from("<Q", content, end - 36)[0] + 4)
    (tmp_path / "checkpoint.pt").write_bytes(content)
    assert reason(tmp_path / "checkpoint.pt") == "damaged: its headers make no sense (error)"


def header_of(**entries: Any) -> bytes:
    raw = json.dumps(entries).encode()
    return struct.pack("<Q", len(raw)) + raw


HOSTILE = {
    "a tensor that stands twice": (
        b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
        "a key stands in it twice",
    ),
    "two tensors over each other": (
        b'{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}',
        "do not fill it",
    ),
    "a gap": (
        b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}',
        "do not fill it",
    ),
    "another size than its shape": (
        b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}',
        "another size",
    ),
    "a shape of a thousand large sizes": (
        b'{"a":{"dtype":"F32","shape":[' + b"9999999999999999999," * 1000 + b'1],"data_offsets":[0,4]}}',
        "another size",
    ),
    "a negative size": (b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}', "no safetensors header"),
    "a number of a million digits": (
        b'{"a":{"dtype":"F32","shape":[' + b"9" * 1_000_000 + b'],"data_offsets":[0,4]}}',
        "no safetensors header",
    ),
    "metadata that is no text": (b'{"__metadata__":{"step":5}}', "no safetensors header"),
    "a list": (b'{"a":[]}', "no safetensors header"),
    "not UTF-8": (b'{"a\xff":{}}', "no safetensors header"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_safetensors_header_that_lies_is_refused(tmp_path: Path, name: str) -> None:
    header, said = HOSTILE[name]
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    began = time.process_time()
    assert said in reason(old(path))
    assert time.process_time() - began < 2


@pytest.mark.parametrize("length", [0, 1, 101 << 20, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_a_safetensors_header_of_any_length_is_neither_believed_nor_read(tmp_path: Path, length: int) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", length) + b'{"a":{}}' + bytes(64))
    said = reason(old(path))
    assert any(word in said for word in ("longer than the file", "no safetensors header", "with a header of"))


def test_zero_sized_tensors_and_types_to_come_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    one = {"dtype": "F32", "shape": [0, 3], "data_offsets": [0, 0]}
    path.write_bytes(
        header_of(
            a=one,
            b=one,
            c={"dtype": "F4", "shape": [7], "data_offsets": [0, 4]},
            __metadata__={"format": "pt"},
        )
        + bytes(4)
    )
    assert look(path)["complete"] is True


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"\x1f\x8b\x08", "a gzip file"),
        (b"GGUF\3\0\0\0", "a GGUF file"),
        (b"\x28\xb5\x2f\xfd", "a zstd file"),
        (b"\x93NUMPY\1\0", "a numpy array"),
        (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
        (b"PK\5\6" + bytes(18), "an empty zip archive"),
        (b"\x80\2}q\0.", "a bare pickle"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS, not the file itself"),
    ],
)
def test_other_formats_are_refused_by_their_name(tmp_path: Path, head: bytes, name: str) -> None:
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(head + b"x" * 300)
    assert reason(old(path)) == f"not understood: {name}"


@pytest.mark.report("c7")
def test_no_marker_makes_zeros_an_empty_file_or_a_pipe_whole(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    for content in (bytes(4096), b"", b"version https://git-lfs.github.com/spec/v1\n"):
        path.write_bytes(content)
        (tmp_path / "DONE").touch()
        assert look(path, "DONE")["complete"] is False
    path.unlink()
    os.mkfifo(path)
    (tmp_path / "DONE").touch()
    assert look(path, "DONE")["complete"] is False
