"""What counts as the evaluation is what it runs: every module that it imports, and no room of the training."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from dflash import harness
from tests.payloads.conftest import PAYLOADS


def imports(path: Path) -> set[Path]:
    """The files of the payload that a file imports."""
    files: set[Path] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "dflash":
            place = PAYLOADS / node.module.replace(".", "/")
            files |= {place.with_suffix(".py"), *(place / f"{alias.name}.py" for alias in node.names)}
    return {file for file in files if file.is_file()}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return shutil.copytree(PAYLOADS, tmp_path / "harness", ignore=shutil.ignore_patterns("__pycache__"))


def test_every_module_that_an_evaluation_imports_is_hashed() -> None:
    closure: set[Path] = set()
    pending = {PAYLOADS / name for name in harness.SCRIPTS}
    while pending:
        file = pending.pop()
        closure.add(file)
        pending |= imports(file) - closure
    assert len(closure) > 30
    assert {str(file.relative_to(PAYLOADS)) for file in closure} <= set(harness.hashes(PAYLOADS))


def test_an_edit_of_the_trainer_makes_no_evaluation_another_one(copy: Path) -> None:
    before = harness.hashes(copy)
    for file in ("dflash/training/telemetry.py", "dflash/features/queue.py", "train_drafter.py"):
        (copy / file).write_text((copy / file).read_text() + "\n# edited\n")
    assert harness.hashes(copy) == before


def test_an_edit_of_a_metric_or_a_stray_module_in_a_room_is_seen(copy: Path) -> None:
    before = harness.hashes(copy)
    (copy / "dflash/evaluation/metrics.py").write_text("# edited\n")
    (copy / "dflash/target/statistics.py").write_text("# shadows\n")
    after = harness.hashes(copy)
    assert {name for name in after if after[name] != before.get(name)} == {
        "dflash/evaluation/metrics.py",
        "dflash/target/statistics.py",
    }
