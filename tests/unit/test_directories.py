"""hostkit's own folders are where XDG says, and nobody else's to read."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from hostkit import directories
from hostkit.errors import CannotCreateError


@pytest.mark.parametrize(
    ("variable", "function"),
    [
        ("XDG_STATE_HOME", directories.state_directory),
        ("XDG_DATA_HOME", directories.data_directory),
    ],
)
def test_a_folder_is_made_for_its_owner_alone(
    variable: str, function: Callable[[], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(tmp_path))
    (tmp_path / "hostkit").mkdir(mode=0o755)
    assert function() == tmp_path / "hostkit"
    assert stat.S_IMODE((tmp_path / "hostkit").stat().st_mode) == 0o700


def test_a_folder_that_cannot_be_made_is_an_error_with_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(CannotCreateError, match="XDG"):
        directories.state_directory()
