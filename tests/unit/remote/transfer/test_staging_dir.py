"""What lies where a checkpoint is to be staged is not believed, nor in the way; what cannot go does not fail it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import receiver
from transfer import retention
from transfer.staging_dir import StagingSlot

SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # of nothing
WHOLE: dict[str, Any] = {
    "schema": "hostkit.staged/1",
    "run": "drafter",
    "step": 1,
    "entry": "checkpoint.pt",
    "method": "full",
    "bytes": 0,
    "sha256": SHA256,
    "route": [],
    "files": [{"name": "checkpoint.pt", "sha256": SHA256}],
}


@pytest.fixture
def slot(tmp_path: Path) -> StagingSlot:
    return StagingSlot(str(tmp_path), "drafter-step1-00000000")


def lay(folder: str, manifest: str) -> None:
    Path(folder).mkdir(parents=True)
    (Path(folder) / "checkpoint.pt").touch()
    (Path(folder) / "manifest.json").write_text(manifest)


def prove(slot: StagingSlot) -> Any:
    return receiver.serve({"op": "prove", "folder": slot.folder, "name": slot.name})["proven"]


def test_a_manifest_as_it_was_written_proves_what_it_names(slot: StagingSlot) -> None:
    lay(slot.final, json.dumps(WHOLE))
    assert prove(slot) is True


def test_a_fifo_or_a_device_in_the_place_of_a_manifest_or_of_a_job_s_spec_hangs_nobody(
    slot: StagingSlot,
) -> None:
    lay(slot.final, json.dumps(WHOLE))
    manifest = Path(slot.final) / "manifest.json"
    manifest.unlink()
    os.mkfifo(manifest)
    assert prove(slot) is False
    assert retention.prunable(slot.folder, "another", "drafter", 1, None) == []
    job = Path(slot.folder) / "state" / "jobs" / "0123456789abcdef"
    job.mkdir(parents=True)
    os.mkfifo(job / "spec.json")
    assert retention.users(slot.final, slot.final, str(job.parents[1])) == []
    manifest.unlink()
    manifest.symlink_to("/dev/zero")
    assert prove(slot) is False


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "hostkit.staged/2"},
        {"schema": None},
        {"files": []},
        {"files": "checkpoint.pt"},
        {"files": {"checkpoint.pt": SHA256}},
        {"files": [{"name": "checkpoint.pt"}]},
        {"files": [{"name": "../other/checkpoint.pt", "sha256": SHA256}]},
        {"entry": 5},
        {"sha256": None},
        {"route": None},
    ],
    ids=str,
)
def test_any_other_manifest_proves_nothing_and_is_no_fault(slot: StagingSlot, change: dict[str, Any]) -> None:
    lay(slot.final, json.dumps(WHOLE | change))
    assert prove(slot) is False
    assert slot.manifest() is None


@pytest.mark.parametrize("text", ["", "[]", "null", "[" * 100_000, "\0", '{"schema": "hostkit.staged/1"}'])
def test_a_manifest_that_is_none_proves_nothing_and_is_no_fault(slot: StagingSlot, text: str) -> None:
    lay(slot.final, text)
    assert prove(slot) is False
    assert retention.prunable(slot.folder, "newest", "drafter", 1, "/nowhere") == []


@pytest.mark.parametrize("note", ["5", "[1]", "[" * 100_000, "{"])
def test_a_lock_with_anything_written_in_it_is_still_only_a_lock(slot: StagingSlot, note: str) -> None:
    import fcntl

    Path(slot.staging).mkdir()
    Path(slot.lock).write_text(note)
    with open(slot.lock) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert slot.holder() == {"held": True}


def publish(slot: StagingSlot, **more: Any) -> dict[str, Any]:
    Path(slot.partial).mkdir(parents=True)
    arrived = Path(slot.partial) / "checkpoint.pt"
    arrived.touch()
    look = arrived.stat()
    proof = {"name": "checkpoint.pt", "sha256": SHA256, "size": 0}
    proof |= {"mtime_ns": look.st_mtime_ns, "inode": look.st_ino}
    asked = {"op": "publish", "folder": slot.folder, "name": slot.name, "keep": 1, "state": "/nowhere"}
    return receiver.serve(asked | {"manifest": WHOLE | {"files": [proof]}} | more)


@pytest.mark.parametrize("what", ["file", "link to nothing", "link to a folder", "folder"])
def test_whatever_has_the_final_name_makes_way_and_what_a_link_names_stays(
    slot: StagingSlot, what: str
) -> None:
    elsewhere = Path(slot.folder) / "elsewhere"
    lay(str(elsewhere), "mine")
    final = Path(slot.final)
    if what == "file":
        final.write_text("somebody's")
    elif what == "folder":
        lay(slot.final, "{}")
    else:
        final.symlink_to(elsewhere if what == "link to a folder" else "/nowhere")
    assert publish(slot).get("path") == slot.final
    assert final.is_dir()
    assert not final.is_symlink()
    assert prove(slot) is True
    assert (elsewhere / "manifest.json").read_text() == "mine"


def test_an_older_one_that_cannot_be_removed_does_not_fail_what_was_staged(
    slot: StagingSlot, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = Path(slot.folder) / "older"
    lay(str(older), json.dumps(WHOLE | {"staged_at": 1.0}))
    rename = os.rename

    def held(source: str, target: str) -> None:
        if source == str(older):
            raise PermissionError(
                1, "Operation not permitted", source
            )  # as for an immutable or a mounted one
        rename(source, target)

    monkeypatch.setattr(os, "rename", held)
    reply = publish(slot)
    assert (reply.get("path"), reply.get("removed")) == (slot.final, [])
    assert older.is_dir()


def test_a_reader_counts_though_another_of_its_files_was_closed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay(str(tmp_path / "one"), "{}")
    listed = os.listdir
    monkeypatch.setattr(
        os,
        "listdir",
        lambda path: (
            ["987654", *listed(path)] if path.endswith("/fd") else listed(path)
        ),  # gone when it is read
    )
    monkeypatch.setattr(os, "getpid", lambda: 0)  # let our own process count
    with (tmp_path / "one" / "checkpoint.pt").open():
        assert retention.users(str(tmp_path / "one"), str(tmp_path / "one"), "/nowhere")


@pytest.mark.parametrize("given", ["link", "doubled"])
def test_a_reader_counts_by_whatever_name_the_folder_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    lay(str(tmp_path / "data" / "one"), "{}")
    (tmp_path / "link").symlink_to(tmp_path / "data")
    name = f"{tmp_path}/link/one" if given == "link" else f"/{tmp_path}/data/one"
    monkeypatch.setattr(os, "getpid", lambda: 0)  # let our own process count
    with (tmp_path / "data" / "one" / "checkpoint.pt").open():
        assert retention.users(name, name, "/nowhere")
    assert retention.users(name, name, "/nowhere") == []
