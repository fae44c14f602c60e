"""The payload's metrics equal the golden values exactly, and the check notices when they do not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import check_golden
import pytest

from .conftest import DATA, PAYLOADS


def check(file: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    status = check_golden.main([str(file)])
    return status, capsys.readouterr().out


def test_the_golden_file_comes_out_exactly() -> None:
    """As a user runs it: a script in its own process."""
    argv = [sys.executable, str(PAYLOADS / "check_golden.py"), str(DATA / "dflash_golden.json")]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "25 parts, 0 differ" in done.stdout


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("cases", 0, "vanilla_streak"), 2),
        (("cases", 2, "topk_streak", "3"), 3),
        (("cases", 5, "tree", "3", "prefixes"), [[1], [0], [0, 0]]),
        (("cases", 3, "tree", "8", "accepted"), 3),
        (("loss_weights", 0, "weights", 3), 0.75),
        (("target_layer_ids", 0, "ids", 1), 8),
    ],
)
def test_a_changed_golden_value_is_a_difference(
    path: tuple, value: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads((DATA / "dflash_golden.json").read_text())
    at = document
    for key in path[:-1]:
        at = at[key]
    assert at[path[-1]] != value
    at[path[-1]] = value
    file = tmp_path / "changed.json"
    file.write_text(json.dumps(document))
    status, said = check(file, capsys)
    assert status == 1
    assert "1 differ" in said


def test_a_file_of_another_kind_is_not_called_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "other.json"
    file.write_text("{}")
    assert check(file, capsys)[0] == 1
