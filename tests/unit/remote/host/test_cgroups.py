"""Control groups of jobs: what cannot be listed is no error."""

from __future__ import annotations

from pathlib import Path

from host import cgroups


def test_a_place_for_groups_that_cannot_be_listed_is_no_error(tmp_path: Path) -> None:
    cgroups._clear_stale(str(tmp_path / "gone"))
