"""Where no terminal shows them in place, steps are told in few lines: begun, now and then how far, ended."""

from __future__ import annotations

import pytest

from hostkit.evals.steps import Steps
from hostkit.report.steps import StepBoard


def test_progress_in_a_pipe_is_not_a_line_for_each_tick(capsys: pytest.CaptureFixture[str]) -> None:
    board = StepBoard(quiet=False)
    board.steps = steps = Steps(watch=board.changed)
    with board, steps.running("run") as step:
        for done in range(100):
            steps.say("run", f"blocks {done}/100")
        step.message = "100 blocks"
    first, progress, last = capsys.readouterr().err.splitlines()
    assert first.startswith("steps: find, verify")
    assert progress.split() == ["run", "running", "blocks", "0/100"]
    assert last.startswith("run            done     100 blocks")
