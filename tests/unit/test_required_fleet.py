"""Where there can be no real fleet its tests are skipped with one reason; where it is required, they fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
PROGRAM = """
import sys, pytest
import tests.fleet.needs as needs
needs.lacking = lambda: "no containers on this machine"
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "tests/fleet/test_fleet.py", "-k", "only_way_in"]))
"""


@pytest.mark.parametrize(("required", "code", "word"), [("0", 0, "1 skipped"), ("1", 1, "1 error")])
def test_a_missing_fleet_is_a_skip_here_and_a_failure_in_ci(required: str, code: int, word: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=CHECKOUT,
        env=os.environ | {"HOSTKIT_REQUIRE_FLEET": required},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout
    assert word in done.stdout
    assert "no containers on this machine" in done.stdout
