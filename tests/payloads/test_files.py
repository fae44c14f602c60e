"""Whether a file can be written is tried out beforehand, by any number of processes at once, without a trace."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dflash.files import require_place


def test_two_that_try_the_same_place_at_once_do_not_take_it_from_each_other(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: require_place(tmp_path / "result.json"), range(200)))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_its_place_is_said_before_hours_of_work(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        require_place(tmp_path)
