"""Every fault of a faulty file is told, at its line and path, with what to write; a new case is two new files."""

from __future__ import annotations

from pathlib import Path

import pytest

from hostkit.errors import ConfigError
from hostkit.inventory.loading import check_bytes

from .cases import ENVIRON, cases


@pytest.mark.parametrize("file", cases("faulty"))
def test_all_faults_of_a_file_are_told_at_once(file: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        check_bytes(file.read_bytes(), Path("f"), ENVIRON)
    assert caught.value.exit_code == 78
    told = [fault.removeprefix("f:") for fault in caught.value.faults]
    assert told == file.with_suffix(".faults").read_text().splitlines()
