"""How a remote module travels is worked out once, kept, and believed only for the very source that it was made of."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from hostkit.transport import stripped as module
from hostkit.transport.stripped import Stripped, stripped

SOURCE = '"""What it does."""\n\nNEEDS = ("sibling", "other")  # they travel too\nX = 1\n'
TRAVELS = Stripped('\n\nNEEDS = ("sibling", "other")\nX = 1\n', ("sibling", "other"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "hostkit/remote/trial.json"


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Count how often a module is worked out."""
    made: list[str] = []
    bare = module.bare
    monkeypatch.setattr(module, "bare", lambda source: made.append(source) or bare(source))
    return lambda: len(made)


def test_comments_go_and_needs_are_told(cache: Path) -> None:
    assert stripped("trial", SOURCE) == TRAVELS


def test_it_is_worked_out_once_and_read_by_its_owner_alone(cache: Path, once: Callable[[], int]) -> None:
    assert stripped("trial", SOURCE) == stripped("trial", SOURCE) == TRAVELS
    assert once() == 1
    assert cache.stat().st_mode & 0o077 == 0
    assert cache.parent.stat().st_mode & 0o077 == 0


def test_another_source_is_worked_out_anew(cache: Path) -> None:
    stripped("trial", SOURCE)
    assert stripped("trial", SOURCE.replace("X = 1", "X = 2")).text.endswith("X = 2\n")


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"null", b'{"key": 1}', b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_cache_is_no_truth(cache: Path, damage: bytes) -> None:
    stripped("trial", SOURCE)
    cache.write_bytes(damage)
    assert stripped("trial", SOURCE) == TRAVELS


@pytest.mark.parametrize("what", ["a bit", "another's right to write"])
def test_what_runs_on_hosts_is_not_taken_from_a_file_that_another_or_the_disk_may_have_changed(
    cache: Path, once: Callable[[], int], what: str
) -> None:
    stripped("trial", SOURCE)
    if what == "a bit":
        cache.write_text(cache.read_text().replace("X = 1", "X = 3"))
    else:
        cache.chmod(0o620)
    assert stripped("trial", SOURCE) == TRAVELS
    assert once() == 2
    assert stripped("trial", SOURCE) == TRAVELS
    assert once() == 2  # and a sound one stands there again


def test_a_full_disk_leaves_nothing_half_written(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(Path, "replace", full)
    assert stripped("trial", SOURCE) == TRAVELS
    assert list(cache.parent.iterdir()) == []


def test_without_a_place_for_a_cache_it_is_worked_out_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, once: Callable[[], int]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert stripped("trial", SOURCE) == stripped("trial", SOURCE) == TRAVELS
    assert once() == 2
