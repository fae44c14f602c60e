"""Reading leaves the page cache as it was: only what can be told to be nobody's is dropped."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from host import page_cache


def test_where_cachestat_sees_no_page_what_others_had_in_memory_stays_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on overlayfs, whose files have no pages of their own."""
    path = tmp_path / "file"
    path.write_bytes(os.urandom(4 << 20))
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)  # else in pages too large to go
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(descriptor, 4 << 20, 0)
        real = page_cache._residency(descriptor)
        warm = real(0, 4 << 20)
        if not warm:
            pytest.skip("this kernel tells nobody what is in memory")
        monkeypatch.setattr(page_cache, "_cachestat", lambda _libc, _descriptor: lambda _start, _size: 0)
        reader = page_cache.CacheNeutralReader(descriptor)
        for _ in reader.blocks(0, 4 << 20):
            pass
        reader.close()
        assert real(0, 4 << 20) == warm
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("residency", ["cachestat", "mincore"])
def test_both_ways_to_ask_for_residency_agree(tmp_path: Path, residency: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1 << 20))
    descriptor = os.open(path, os.O_RDWR)
    try:
        ask = getattr(page_cache, "_" + residency)(ctypes.CDLL(None, use_errno=True), descriptor)
        if ask(0, 4096) is None:
            pytest.skip(f"no {residency} here")
        os.pread(descriptor, 1 << 20, 0)
        assert ask(0, 1 << 20) == 256
        assert ask(4096, 8192) == 2
    finally:
        os.close(descriptor)
