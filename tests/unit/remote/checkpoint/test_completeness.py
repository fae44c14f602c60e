"""Completeness of checkpoints on disk: every format, and every way to be half-written that was reported."""

from __future__ import annotations

import json
import os
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from checkpoint import completeness


def torch_file(path: Path, *, legacy: bool = False) -> Path:
    import torch

    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(
        {"drafter": {"fc.weight": torch.arange(600.0).reshape(20, 30)}, "step": 4000},
        path,
        _use_new_zipfile_serialization=not legacy,
    )
    return path


def safetensors_file(path: Path, numbers: int = 64) -> Path:
    header = json.dumps(
        {"w": {"dtype": "F32", "shape": [numbers], "data_offsets": [0, 4 * numbers]}}
    ).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4 * numbers))
    return path


def old(path: Path, seconds: float = 3600) -> Path:
    then = time.time() - seconds
    os.utime(path, (then, then))
    return path


def look(path: Path, marker: str | None = None) -> dict[str, Any]:
    seen: dict[str, Any] = completeness.examine(str(path), marker)
    return seen


def reason(path: Path, marker: str | None = None) -> str:
    seen = look(path, marker)
    assert seen["complete"] is False
    return str(seen["reason"])


def test_a_whole_torch_file_is_complete_with_its_size_and_identity(tmp_path: Path) -> None:
    path = torch_file(tmp_path / "checkpoint.pt")
    seen = look(path)
    stat = path.stat()
    assert (seen["format"], seen["complete"], seen["reason"], seen["writer"]) == (
        "torch-zip",
        True,
        None,
        False,
    )
    assert (seen["size"], seen["mtime_ns"], seen["inode"], seen["dev"]) == (
        stat.st_size,
        stat.st_mtime_ns,
        stat.st_ino,
        stat.st_dev,
    )


@pytest.mark.parametrize("kept", [0.2, 0.6, 0.9, 0.9999])
@pytest.mark.report("c11")
def test_a_file_that_a_full_disk_cut_is_a_truncated_archive(tmp_path: Path, kept: float) -> None:
    path = torch_file(tmp_path / "checkpoint.pt")
    os.truncate(path, int(path.stat().st_size * kept))
    assert "truncated archive" in reason(old(path))


def test_a_truncated_file_padded_with_a_hole_to_its_full_size_is_found(tmp_path: Path) -> None:
    path = torch_file(tmp_path / "checkpoint.pt")
    size = path.stat().st_size
    os.truncate(path, size // 2)
    os.truncate(path, size)
    assert "truncated archive" in reason(old(path))


def test_one_byte_after_the_end_record_is_found(tmp_path: Path) -> None:
    path = torch_file(tmp_path / "checkpoint.pt")
    with path.open("ab") as file:
        file.write(b"x")
    assert "truncated archive" in reason(old(path))


def test_bytes_lost_from_the_middle_are_found(tmp_path: Path) -> None:
    path = torch_file(tmp_path / "checkpoint.pt")
    whole = path.read_bytes()
    path.write_bytes(whole[:500] + whole[600:])
    assert "damaged archive" in reason(old(path))


def test_a_directory_that_lost_a_record_is_found(tmp_path: Path) -> None:
    path = torch_file(tmp_path / "checkpoint.pt")
    whole = bytearray(path.read_bytes())
    whole[-66:-58] = struct.pack(
        "<Q", 3
    )  # number of records, in the zip64 end record that torch always writes
    path.write_bytes(whole)
    assert "damaged archive" in reason(old(path))


def test_a_file_that_is_open_for_writing_is_incomplete_though_all_bytes_are_there(tmp_path: Path) -> None:
    path = torch_file(tmp_path / "checkpoint.pt")
    with path.open("ab"):
        seen = look(path)
        assert (seen["complete"], seen["writer"], seen["reason"]) == (False, True, "open for writing")
    assert look(path)["complete"] is True


def test_where_writers_cannot_be_seen_a_fresh_file_has_to_settle_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completeness, "writer", lambda _path: None)
    path = torch_file(tmp_path / "checkpoint.pt")
    assert "cannot be told here" in reason(path)
    seen = look(old(path))
    assert (seen["complete"], seen["writer"]) == (True, None)


def test_a_file_that_grows_between_two_looks_is_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = torch_file(tmp_path / "checkpoint.pt")

    def writer(name: str) -> bool:
        with open(name, "ab") as file:
            file.write(b"more")
        return False

    monkeypatch.setitem(completeness._CHECKS, "torch-zip", lambda _path: None)
    monkeypatch.setattr(completeness, "writer", writer)
    assert "changed while it was looked at" in reason(path)


@pytest.mark.report("c7")
def test_empty_files_after_a_power_cut_are_named_and_the_older_one_is_good(tmp_path: Path) -> None:
    torch_file(tmp_path / "epoch418" / "model.pt")
    for epoch in (420, 422):
        (tmp_path / f"epoch{epoch}").mkdir()
        (tmp_path / f"epoch{epoch}" / "model.pt").touch()
    seen = completeness.candidates(str(tmp_path), "epoch{step}/model.pt")
    assert [(one["step"], one["complete"]) for one in seen] == [(418, True), (420, False), (422, False)]
    assert seen[2]["reason"] == "an empty file (0 bytes)"


@pytest.mark.report("c1")
def test_steps_are_sorted_as_numbers(tmp_path: Path) -> None:
    for step in (999, 4000, 9000, 10000):
        torch_file(tmp_path / f"step_{step}.pt")
    seen = completeness.candidates(str(tmp_path), "step_{step}.pt")
    assert [one["step"] for one in seen] == [999, 4000, 9000, 10000]
    assert [one["step"] for one in completeness.candidates(str(tmp_path), "step_{step}.pt", limit=2)] == [
        9000,
        10000,
    ]


@pytest.mark.report("c3")
def test_without_its_marker_a_checkpoint_is_incomplete(tmp_path: Path) -> None:
    for step in (4000, 5000):
        torch_file(tmp_path / f"step_{step}" / "checkpoint.pt")
    (tmp_path / "step_4000" / "DONE").touch()
    seen = completeness.candidates(str(tmp_path), "step_{step}/checkpoint.pt", "DONE")
    assert [(one["step"], one["complete"]) for one in seen] == [(4000, True), (5000, False)]
    assert "no marker DONE" in str(seen[1]["reason"])


@pytest.mark.report("c5")
def test_a_marker_older_than_the_weights_proves_nothing(tmp_path: Path) -> None:
    path = torch_file(tmp_path / "step_4000" / "checkpoint.pt")
    marker = tmp_path / "step_4000" / "DONE"
    marker.touch()
    old(marker)
    assert "newer than the marker" in reason(path, "DONE")


@pytest.mark.report("c5")
def test_in_a_folder_every_file_must_be_no_newer_than_the_marker(tmp_path: Path) -> None:
    old(safetensors_file(tmp_path / "step_1" / "model.safetensors"))
    old(safetensors_file(tmp_path / "step_1" / "optimizer.safetensors"), -5)
    (tmp_path / "step_1" / "DONE").touch()
    assert "optimizer.safetensors is newer" in reason(tmp_path / "step_1", "DONE")
    old(tmp_path / "step_1" / "optimizer.safetensors")
    assert look(tmp_path / "step_1", "DONE")["complete"] is True


def test_a_marker_may_name_the_step_and_stand_beside_a_flat_file(tmp_path: Path) -> None:
    torch_file(tmp_path / "step_7.pt")
    torch_file(tmp_path / "step_8.pt")
    (tmp_path / "step_7.done").touch()
    seen = completeness.candidates(str(tmp_path), "step_{step}.pt", "step_{step}.done")
    assert [one["complete"] for one in seen] == [True, False]


@pytest.mark.report("c9")
def test_a_link_is_followed_and_a_dangling_one_is_named(tmp_path: Path) -> None:
    torch_file(tmp_path / "real.pt")
    (tmp_path / "step_1.pt").symlink_to(tmp_path / "real.pt")
    (tmp_path / "step_2.pt").symlink_to("/ct/rootfs/ckpt/step_4000.pt")
    (tmp_path / "step_3.pt").symlink_to(tmp_path / "step_3.pt")
    (tmp_path / "latest").symlink_to("/ct/rootfs/ckpt/step_4000.pt")
    seen = completeness.candidates(str(tmp_path), "step_{step}.pt")
    assert [one["complete"] for one in seen] == [True, False, False]
    assert seen[1]["reason"] == "a link to nothing: /ct/rootfs/ckpt/step_4000.pt"


@pytest.mark.report("c17")
def test_a_checkpoint_pruned_between_listing_and_look_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (1000, 2000):
        torch_file(tmp_path / f"step_{step}.pt")
    plain = completeness.examine

    def prune_then_examine(path: str, marker: str | None = None) -> dict[str, object]:
        Path(path).unlink(missing_ok="1000" in path)
        (tmp_path / "step_2000.pt").exists() or torch_file(tmp_path / "step_2000.pt")
        return plain(path, marker)

    monkeypatch.setattr(completeness, "examine", prune_then_examine)
    assert [one["step"] for one in completeness.candidates(str(tmp_path), "step_{step}.pt")] == [2000]


def test_more_checkpoints_of_an_earlier_attempt_than_are_looked_at_do_not_hide_the_live_one_s(
    tmp_path: Path,
) -> None:
    for step in [20, 40, *range(1000, 1020)]:
        old(torch_file(tmp_path / f"step_{step}.pt"), 10 if step < 1000 else 86400)
    seen = completeness.candidates(str(tmp_path), "step_{step}.pt", limit=8)
    assert [one["step"] for one in seen] == [20, 40, *range(1014, 1020)]
    assert len(completeness.candidates(str(tmp_path), "step_{step}.pt", limit=22)) == 22


def test_temporary_names_and_odd_names_are_no_candidates(tmp_path: Path) -> None:
    torch_file(tmp_path / "step_5" / "checkpoint.pt")
    for name in (
        "step_6.tmp/checkpoint.pt",
        "step_7/checkpoint.pt.tmp",
        "step_x/checkpoint.pt",
        "step_٣/checkpoint.pt",
        "step_" + "7" * 240 + "/checkpoint.pt",
    ):
        torch_file(tmp_path / name)
    assert [one["step"] for one in completeness.candidates(str(tmp_path), "step_{step}/checkpoint.pt")] == [5]


def test_a_pattern_may_hold_a_star_and_special_characters_are_plain(tmp_path: Path) -> None:
    torch_file(tmp_path / "run (v2)+-step12" / "state.pt")
    torch_file(tmp_path / "other" / "state.pt")
    seen = completeness.candidates(str(tmp_path), "*)+-step{step}/state.pt")
    assert [one["step"] for one in seen] == [12]


def test_no_root_means_no_candidates_and_an_unreadable_one_is_an_error(tmp_path: Path) -> None:
    assert completeness.candidates(str(tmp_path / "none"), "step_{step}.pt") == []
    with pytest.raises(OSError, match="File name too long"):
        completeness.candidates("/" + "x" * 300, "step_{step}.pt")


def test_safetensors_is_complete_when_its_header_sums_to_its_size(tmp_path: Path) -> None:
    path = safetensors_file(tmp_path / "model.safetensors")
    assert (look(path)["format"], look(path)["complete"]) == ("safetensors", True)
    os.truncate(path, path.stat().st_size - 1)
    assert "its header promises" in reason(old(path))
    os.truncate(path, 20)
    assert "header alone is longer" in reason(old(path))


def test_a_header_that_would_take_the_hosts_memory_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    header = b'{"__metadata__": {"x": "' + b"y" * (9 << 20) + b'"}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    assert "longer than the" in reason(old(path))
    assert look(path)["format"] == "safetensors"


def test_a_sharded_folder_needs_every_shard_of_its_index_whole(tmp_path: Path) -> None:
    folder = tmp_path / "step_9"
    one = safetensors_file(folder / "model-00001-of-00002.safetensors")
    index = folder / "model.safetensors.index.json"
    names = {"a": one.name, "b": "model-00002-of-00002.safetensors"}
    index.write_text(json.dumps({"weight_map": names}))
    assert "1 of 2 shards missing: model-00002" in reason(folder)
    two = safetensors_file(folder / names["b"])
    assert (look(folder)["format"], look(folder)["complete"]) == ("sharded", True)
    assert look(index)["complete"] is True
    os.truncate(two, 100)
    assert reason(folder).startswith("model-00002-of-00002.safetensors: truncated")
    index.write_text('{"weight_map": {"a"')
    assert "no whole index" in reason(folder)


def test_a_hugging_face_folder_is_as_whole_as_its_weights(tmp_path: Path) -> None:
    folder = tmp_path / "step_9"
    weights = safetensors_file(folder / "model.safetensors")
    (folder / "config.json").write_text("{}")
    seen = look(folder)
    assert (seen["format"], seen["complete"], seen["size"]) == (
        "huggingface",
        True,
        weights.stat().st_size + 2,
    )
    with weights.open("ab"):
        assert reason(folder) == "model.safetensors: open for writing"


def test_a_legacy_torch_file_is_taken_with_a_reservation(tmp_path: Path) -> None:
    seen = look(old(torch_file(tmp_path / "checkpoint.pt", legacy=True)))
    assert (seen["format"], seen["complete"]) == ("torch-legacy", True)
    assert "no end mark" in str(seen["reason"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (bytes(4096), "begins with zeros"),
        (b"\x80\x04\x95plain", "a bare pickle"),
        (b"x" * 257 + b"ustar\0", "a tar archive"),
        (b"hello, world", "no known format"),
    ],
)
def test_what_is_not_understood_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(content)
    assert reason(old(path)) == f"not understood: {said}"


def test_an_unknown_format_with_its_own_marker_is_taken_and_said_so(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"a format of my own")
    (tmp_path / "DONE").touch()
    seen = look(tmp_path / "weights.bin", "DONE")
    assert seen["complete"] is True
    assert str(seen["reason"]).startswith("taken as whole for its marker alone")


def test_a_pipe_does_not_make_the_reader_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "checkpoint.pt")
    assert "neither a regular file nor a folder" in reason(tmp_path / "checkpoint.pt")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "folder" / "model.safetensors.index.json")
    assert "is no whole index" in reason(tmp_path / "folder")


def test_a_link_to_nothing_inside_a_folder_is_named_and_does_not_hide_the_folder(tmp_path: Path) -> None:
    (tmp_path / "step_9").mkdir()
    (tmp_path / "step_9" / "model.safetensors").symlink_to("/nowhere")
    (seen,) = completeness.candidates(str(tmp_path), "step_{step}")
    assert seen["reason"] == "a file in it has vanished, or is a link to nothing"


def test_an_index_that_is_garbage_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_bytes(b'{"weight_map":' + b"[" * 60_000)
    assert reason(tmp_path).endswith("is no whole index")


def test_looking_does_not_touch_the_access_time(tmp_path: Path) -> None:
    path = old(torch_file(tmp_path / "checkpoint.pt"), 10 * 86400)
    before = path.stat().st_atime_ns
    assert look(path)["complete"] is True
    assert path.stat().st_atime_ns == before


def test_a_large_archive_with_zip64_records_is_read(tmp_path: Path) -> None:
    import zipfile

    path = tmp_path / "checkpoint.pt"
    with zipfile.ZipFile(path, "w") as archive:
        with archive.open("x/data.pkl", "w", force_zip64=True) as file:
            file.write(b"pickle")
        for number in range(66_000):
            archive.writestr(f"x/data/{number}", b"")
    assert look(path) | {"path": ""} == look(path) | {"path": "", "complete": True, "reason": None}


def test_leading_zeros_and_two_names_of_one_step_are_all_listed_as_that_step(tmp_path: Path) -> None:
    torch_file(tmp_path / "step_00500.pt")
    old(torch_file(tmp_path / "step_500.pt"))
    torch_file(tmp_path / "step_08.pt")
    (tmp_path / "step_900.pt").symlink_to("step_500.pt")
    seen = completeness.candidates(str(tmp_path), "step_{step}.pt")
    assert [(one["step"], Path(str(one["path"])).name) for one in seen] == [
        (8, "step_08.pt"),
        (500, "step_00500.pt"),
        (500, "step_500.pt"),
        (900, "step_900.pt"),
    ]


def test_a_step_that_a_pattern_names_twice_must_be_one_step(tmp_path: Path) -> None:
    for name in ("step_5/model_5_5.pt", "step_6/model_7_7.pt", "step_7/model_7_8.pt"):
        torch_file(tmp_path / name)
    seen = completeness.candidates(str(tmp_path), "step_{step}/model_{step}_{step}.pt")
    assert [one["step"] for one in seen] == [5]


def test_a_star_takes_no_temporary_and_no_hidden_name(tmp_path: Path) -> None:
    for name in (
        "a-step_1.pt",
        "a-step_2.pt.tmp",
        "tmp-step_3.pt",
        ".a-step_4.pt",
        "a-step_5.pt.part",
        "a-step_6.pt~",
    ):
        torch_file(tmp_path / name)
    assert [one["step"] for one in completeness.candidates(str(tmp_path), "*step_{step}.pt*")] == [1]
    assert [one["step"] for one in completeness.candidates(str(tmp_path), "tmp-*_{step}.pt")] == [3]
