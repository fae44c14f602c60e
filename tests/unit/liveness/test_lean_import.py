"""A status of one host imports only what it needs."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"fabric", "paramiko", "invoke", "rich", "asyncio", "unittest.mock", "sqlite3", "hostkit.evals"}


def test_observing_imports_no_ssh_implementation_no_renderer_and_no_event_loop() -> None:
    code = f"import sys, hostkit.liveness.observe; print(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
