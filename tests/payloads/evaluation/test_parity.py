"""The published reference's recorded outputs come out of the payload's own functions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.payloads.conftest import DATA

PLUGIN = Path(__file__).parents[1] / "parity_plugin.py"


def check(fixture: Path, *more: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(DATA / "check_parity.py"), str(fixture), str(PLUGIN), *more]
    return subprocess.run(argv, capture_output=True, text=True, timeout=170)


def test_two_prompts_of_fixture_a_agree_in_every_check(fixture_a: Path) -> None:
    done = check(fixture_a, "--prompts", "2")
    assert done.returncode == 0, done.stdout
    assert "all checks passed (9 passed, 0 failed, 0 skipped)" in done.stdout


@pytest.mark.slow
def test_all_of_fixture_a_agrees(fixture_a: Path) -> None:
    done = check(fixture_a)
    assert done.returncode == 0, done.stdout
    assert "all checks passed (9 passed, 0 failed, 0 skipped)" in done.stdout
