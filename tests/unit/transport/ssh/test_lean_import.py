"""fabric is imported without asyncio, and nobody else is left with a stand-in for unittest.mock."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from hostkit.transport.ssh.lean_import import lean_import

with lean_import():
    import hostkit.transport.ssh.lines
assert "asyncio" not in sys.modules, "asyncio came in"
import fabric
assert fabric.Connection("h").host == "h"
from unittest.mock import Mock
assert Mock().anything() is not None
"""


def test_fabric_comes_without_asyncio_and_mock_stays_mock() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
