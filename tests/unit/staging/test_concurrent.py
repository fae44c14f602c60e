"""Two commands stage the same checkpoint at once: both end well, with the same bytes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hostkit.staging.method import Method
from hostkit.staging.stage import Staged
from tests.unit.staging.conftest import Ground, saved

COMMANDS = 3
ROUNDS = 3


@pytest.mark.parametrize("method", ["full", "weights"])
def test_commands_that_stage_one_checkpoint_at_once_all_succeed(ground: Ground, method: Method) -> None:
    for step in range(1, ROUNDS + 1):
        source = saved(ground.root / f"step_{step}" / "checkpoint.pt", step)
        start = threading.Barrier(COMMANDS)

        def command(step: int = step, start: threading.Barrier = start) -> Staged:
            start.wait()
            return ground.stage(step, method=method)

        with ThreadPoolExecutor(COMMANDS) as pool:
            staged = [each.result() for each in [pool.submit(command) for _ in range(COMMANDS)]]
        assert len({(each.path, each.sha256) for each in staged}) == 1
        assert sum(not each.reused for each in staged) == 1
        if method == "full":
            assert Path(staged[0].path).read_bytes() == source.read_bytes()
    assert len(ground.finals()) == ROUNDS
    assert list((ground.staged / ".staging").iterdir()) == []
