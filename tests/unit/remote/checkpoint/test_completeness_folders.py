"""Checkpoints that are folders: Hugging Face, sharded, torch.distributed; half written, rewritten, spoilt, odd."""

from __future__ import annotations

import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

import checkpoint_reader
from checkpoint import completeness, folders
from tests.unit.remote.checkpoint.test_completeness import look, old, reason, safetensors_file


def distributed(folder: Path) -> Path:
    """Save as torch.distributed.checkpoint does."""
    import torch
    import torch.distributed.checkpoint as dcp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        content = {"w": torch.ones(40, 3), "b": torch.ones(3).bfloat16(), "step": 5, "opt": {"lr": 0.1}}
        dcp.save(content, checkpoint_id=folder, no_dist=True)
    return folder


def piece(folder: Path) -> Path:
    (found,) = folder.glob("*.distcp")
    return found


def kept_times(path: Path, content: bytes) -> None:
    """Change a file's bytes and none of its times: what the disk did, or a program that sets them."""
    before = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_distributed_checkpoint_is_whole_once_its_metadata_is_there(tmp_path: Path) -> None:
    folder = distributed(tmp_path / "step_9")
    assert (look(folder)["format"], look(folder)["complete"], look(folder)["reason"]) == ("dcp", True, None)
    (folder / ".metadata").rename(folder / ".metadata.tmp")
    assert "no .metadata" in reason(folder)


@pytest.mark.parametrize("kept", [0, 0.3, 0.999])
def test_a_distributed_checkpoint_whose_pieces_do_not_fit_their_file_is_truncated(
    tmp_path: Path, kept: float
) -> None:
    folder = distributed(tmp_path / "step_9")
    whole = piece(folder).read_bytes()
    kept_times(piece(folder), whole[: int(kept * len(whole))])
    assert "is empty" in reason(folder) if not kept else "truncated: .metadata promises" in reason(folder)


def test_a_distributed_checkpoint_with_a_hole_in_place_of_a_piece_is_damaged(tmp_path: Path) -> None:
    folder = distributed(tmp_path / "step_9")
    whole = piece(folder).read_bytes()
    kept_times(piece(folder), whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2))
    assert "damaged: the piece at byte" in reason(folder)


def test_a_distributed_checkpoint_that_lost_a_file_of_its_metadata_is_incomplete(tmp_path: Path) -> None:
    folder = distributed(tmp_path / "step_9")
    piece(folder).rename(folder / "__7_0.distcp")
    assert reason(folder) == "__0_0.distcp, which .metadata names, is missing"
    (folder / "__7_0.distcp").unlink()
    assert reason(folder) == "no .distcp file beside .metadata"


@pytest.mark.report("c5")
def test_a_distributed_checkpoint_that_is_saved_over_keeps_no_old_end_mark(tmp_path: Path) -> None:
    folder = distributed(tmp_path / "step_9")
    old(folder / ".metadata")
    assert reason(folder) == "__0_0.distcp is newer than .metadata (being rewritten?)"


@pytest.mark.parametrize(
    "metadata", [b"garbage", b"", b"\x80\x02}.", b"\x80\x04]\x94.", b"\x80\x04cos\nsystem\n(S'id'\ntR."]
)
def test_metadata_that_is_none_is_no_proof_and_nothing_of_it_is_run(tmp_path: Path, metadata: bytes) -> None:
    folder = distributed(tmp_path / "step_9")
    kept_times(folder / ".metadata", metadata)
    assert "is empty" in reason(folder) or ".metadata is not what" in reason(folder)


def test_metadata_that_names_a_file_elsewhere_is_refused(tmp_path: Path) -> None:
    folder = distributed(tmp_path / "step_9")
    (tmp_path / "_0.distcp").write_bytes(piece(folder).read_bytes())
    # as long as before, so that the pickle stays sound
    kept_times(
        folder / ".metadata", (folder / ".metadata").read_bytes().replace(b"__0_0.distcp", b"../_0.distcp")
    )
    assert ".metadata names a file outside" in reason(folder)


def test_a_large_metadata_is_read_when_one_checkpoint_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completeness, "METADATA_CAP", 100)
    folder = distributed(tmp_path / "step_9")
    kept_times(piece(folder), piece(folder).read_bytes()[:-30])
    assert look(folder)["complete"] is True
    reply = checkpoint_reader.check(str(folder))
    assert (reply["complete"], reply["code"]) == (False, "incomplete")
    assert "truncated" in reply["reason"]
    (one,) = checkpoint_reader.serve({"op": "list", "path": str(tmp_path), "pattern": "step_{step}"})[
        "candidates"
    ]
    assert (one["complete"], one["step"], "code" in one) == (False, 9, False)


def sharded(folder: Path) -> tuple[Path, Path, Path]:
    one = safetensors_file(folder / "model-00001-of-00002.safetensors")
    two = safetensors_file(folder / "model-00002-of-00002.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": one.name, "b": two.name}}))
    return index, one, two


@pytest.mark.report("c5")
def test_shards_of_two_saves_are_not_taken_for_one(tmp_path: Path) -> None:
    index, one, _ = sharded(tmp_path / "step_9")
    old(one, 7200)
    old(index, 7190)
    assert "model-00002-of-00002.safetensors is newer than model.safetensors.index.json" in reason(
        tmp_path / "step_9"
    )
    os.utime(one)  # saved as well, and only the index is still of the former save, which is the same
    assert look(tmp_path / "step_9")["complete"] is True


@pytest.mark.report("c3")
def test_a_shard_that_still_grows_is_incomplete_whatever_the_index_says(tmp_path: Path) -> None:
    _, _, two = sharded(tmp_path / "step_9")
    whole = two.read_bytes()
    for kept in (8, 40, len(whole) - 1):
        two.write_bytes(whole[:kept])
        assert reason(tmp_path / "step_9").startswith("model-00002-of-00002.safetensors: ")
    two.write_bytes(whole)
    with two.open("ab"):
        assert reason(tmp_path / "step_9") == "model-00002-of-00002.safetensors: open for writing"


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ('{"weight_map": {"a": "../model.safetensors"}}', "outside its folder"),
        ('{"weight_map": {"a": "/etc/passwd"}}', "outside its folder"),
        ('{"weight_map": {}}', "or none"),
        ('{"weight_map": {"a": 3}}', "outside its folder"),
        ('{"weight_map": ["a"]}', "no whole index"),
        ('{"weight_map": {"a": "x", "a": "y"}}', "a key stands in it twice"),
        ('{"metadata": {"total_size": ' + "9" * 5000 + '}, "weight_map": {"a": "x"}}', "no whole index"),
        ("[]", "no whole index"),
        ("", "no whole index"),
    ],
)
def test_an_index_that_is_not_to_be_believed_is_named(tmp_path: Path, index: str, said: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(index)
    assert said in reason(tmp_path)


@pytest.mark.report("c3")
def test_a_folder_in_which_something_else_is_still_being_written_is_not_whole(tmp_path: Path) -> None:
    folder = tmp_path / "step_9"
    safetensors_file(folder / "model.safetensors")
    (folder / "rng").mkdir()
    for name in ("optimizer.pt", "rng/rng_state_0.pth"):
        with (folder / name).open("wb") as file:
            file.write(b"PK\3\4 the beginning")
            file.flush()
            assert reason(folder) == f"{name}: open for writing"
    with (folder / "train.log").open("a"):
        assert look(folder)["complete"] is True


def test_the_optimizer_of_a_hugging_face_folder_proves_nothing_and_is_not_looked_into(tmp_path: Path) -> None:
    folder = tmp_path / "step_9"
    safetensors_file(folder / "model.safetensors")
    (folder / "optimizer.pt").write_bytes(b"cut short")
    assert look(folder)["complete"] is True


def test_adapters_and_other_safetensors_are_a_checkpoint_too(tmp_path: Path) -> None:
    folder = tmp_path / "epoch418"
    weights = safetensors_file(folder / "adapter_model.safetensors")
    assert (look(folder)["format"], look(folder)["complete"]) == ("huggingface", True)
    os.truncate(weights, 30)
    assert "truncated" in reason(folder) or "header" in reason(folder)
    weights.write_bytes(b"")
    assert reason(folder) == "adapter_model.safetensors: an empty file (0 bytes)"


def test_of_a_single_file_and_an_index_the_one_that_transformers_loads_is_looked_at(tmp_path: Path) -> None:
    sharded(tmp_path)[1].unlink()
    assert "1 of 2 shards missing" in reason(tmp_path)
    safetensors_file(tmp_path / "model.safetensors")
    assert (look(tmp_path)["format"], look(tmp_path)["complete"]) == ("huggingface", True)


def test_a_folder_of_temporary_files_alone_is_still_being_written(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.tmp").write_bytes(b"x")
    assert reason(tmp_path) == "only temporary files in it: model.safetensors.tmp"


@pytest.mark.report("c11")
def test_a_listing_takes_no_checkpoint_for_whole_that_a_check_finds_damaged(tmp_path: Path) -> None:
    import torch

    for step in (1, 2):
        whole = tmp_path / f"step_{step}.pt"
        torch.save({"w": torch.ones(2000)}, whole, _use_new_zipfile_serialization=step == 1)
        old(whole)
    kept_times(whole, whole.read_bytes()[:-100])  # a legacy file has no end mark: its storages' sizes tell
    asked = {"op": "list", "path": str(tmp_path), "pattern": "step_{step}.pt"}
    seen = checkpoint_reader.serve(asked)["candidates"]
    assert [(one["step"], one["complete"]) for one in seen] == [(1, True), (2, False)]
    assert "its storages need" in seen[1]["reason"]
    kept_times(tmp_path / "step_1.pt", (tmp_path / "step_1.pt").read_bytes().replace(b"storage", b"st0rage"))
    assert "CRC" in checkpoint_reader.serve(asked)["candidates"][0]["reason"]


def fill_with_pipes(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name in (
        "model.safetensors",
        "model.safetensors.index.json",
        ".metadata",
        "__0_0.distcp",
        "optimizer.pt",
    ):
        if not (folder / name).exists():
            os.mkfifo(folder / name)


@pytest.mark.parametrize(
    "kept", ["model.safetensors", "model.safetensors.index.json", ".metadata", "__0_0.distcp"]
)
def test_pipes_in_a_folder_are_neither_waited_for_nor_opened(tmp_path: Path, kept: str) -> None:
    folder = distributed(tmp_path / "d") if "." in kept[:1] or "__" in kept else tmp_path / "d"
    if kept == "model.safetensors":
        safetensors_file(folder / kept)
    fill_with_pipes(folder)
    (folder / "DONE").touch()
    writing = os.open(folder / "optimizer.pt", os.O_RDWR)  # on a pipe of ours this does not wait
    try:
        os.write(writing, b"a byte")
        for marker in (None, "DONE"):
            assert look(folder, marker)["path"] == str(folder)
        assert os.read(writing, 10) == b"a byte"
    finally:
        os.close(writing)


def test_a_device_named_like_a_checkpoint_is_never_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path / "step_1.pt"
    try:
        os.mknod(device, 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero: endless zeros
    except PermissionError:
        device.symlink_to("/dev/zero")
    plain = os.open

    def watched(path: Any, *rest: Any, **more: Any) -> int:
        assert str(path) != str(device), "it was opened"
        return plain(path, *rest, **more)

    monkeypatch.setattr(os, "open", watched)
    assert "neither a regular file nor a folder" in reason(device)
    assert "neither a regular file nor a folder" in reason(device, "step_1.pt")


def as_nobody(path: Path, *words: str) -> dict[str, Any]:
    """Examine as an account that may little."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setuid(65534)
            answer = completeness.examine(str(path), *words)
        except BaseException as error:
            answer = {"error": repr(error)}
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as said:
        found: dict[str, Any] = json.loads(said.read())
    os.waitpid(child, 0)
    return found


@pytest.mark.skipif(os.getuid() != 0, reason="takes root to become somebody else")
def test_what_may_not_be_read_is_said_and_no_part_of_a_folder_is_left_out_silently(tmp_path: Path) -> None:
    for above in (tmp_path, *tmp_path.parents):
        if above.stat().st_mode & 0o005 != 0o005 and str(above).startswith("/tmp/"):
            above.chmod(0o755)
    file = old(safetensors_file(tmp_path / "step_1.safetensors"))
    file.chmod(0o600)
    assert as_nobody(file)["reason"] == "not readable: Permission denied"
    folder = tmp_path / "step_2"
    old(safetensors_file(folder / "model.safetensors"))
    (folder / "shards").mkdir()
    (folder / "shards").chmod(0o700)
    assert as_nobody(folder)["reason"] == "not readable: Permission denied"
    (folder / "shards").chmod(0o755)
    seen = as_nobody(folder)
    assert (seen["complete"], seen["writer"]) == (
        True,
        None,
    )  # whose file it is not, it cannot ask about writers
    folder.chmod(0o700)
    assert as_nobody(folder)["reason"] == "not readable: Permission denied"


@pytest.mark.report("c17")
def test_a_folder_that_is_removed_while_it_is_looked_at_has_vanished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    folder = distributed(tmp_path / "step_9")
    plain = folders.folder_parts

    def then_remove(path: str) -> Any:
        found = plain(path)
        shutil.rmtree(path)
        return found

    monkeypatch.setattr(folders, "folder_parts", then_remove)
    assert reason(folder) == "vanished"
    assert completeness.candidates(str(tmp_path), "step_{step}") == []


def test_a_folder_whose_clock_is_ahead_is_taken_where_no_writer_has_it(tmp_path: Path) -> None:
    folder = tmp_path / "step_9"
    future = time.time() + 3 * 3600
    weights = safetensors_file(folder / "model.safetensors")
    os.utime(weights, (future, future))
    assert look(folder)["complete"] is True


@pytest.mark.parametrize("legacy", [False, True])
def test_a_folder_of_older_torch_files_tells_its_tensors_and_which_files_hold_them(
    tmp_path: Path, legacy: bool
) -> None:
    import torch

    folder = tmp_path / "step_9"
    folder.mkdir()
    for number in (1, 2):
        state = {f"layers.{number}.weight": torch.ones(3, number)}
        path = folder / f"pytorch_model-0000{number}-of-00002.bin"
        torch.save(state, path, _use_new_zipfile_serialization=not legacy)
        old(path)
    (folder / "optimizer.pt").write_bytes(b"x" * 100)
    index = folder / "pytorch_model.bin.index.json"
    names = {f"layers.{number}.weight": f"pytorch_model-0000{number}-of-00002.bin" for number in (1, 2)}
    index.write_text(json.dumps({"weight_map": names}))
    for path in (folder, index):
        reply = checkpoint_reader.inspect(str(path))
        assert (reply["code"], reply["parts"]) == (None, sorted(names.values()))
        assert [(one["path"], one["shape"]) for one in reply["tensors"]] == [
            (["layers.1.weight"], [3, 1]),
            (["layers.2.weight"], [3, 2]),
        ]
    assert sorted(one["name"] for one in reply["files"]) == sorted([*names.values(), index.name])
