"""What is read of a process, or of a file that anybody may have put there, never waits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from host import process


@pytest.mark.timeout(20)
def test_a_fifo_is_read_as_an_empty_file_and_waits_for_no_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert process.read(str(tmp_path / "fifo")) == b""


def test_a_file_is_read_up_to_its_limit_and_a_missing_one_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert process.read(str(tmp_path / "file"), 3) == b"123"
    assert process.read(str(tmp_path / "none")) is None
