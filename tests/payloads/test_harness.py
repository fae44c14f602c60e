"""What counts as the evaluation is what it runs: exactly what it imports, and what could be imported instead."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dflash import harness
from hostkit.evals.dflash import BUNDLED_PROMPTS, EVALUATE, PREFLIGHT, DFlash, imported
from tests.payloads.conftest import PAYLOADS


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return shutil.copytree(PAYLOADS, tmp_path / "harness", ignore=shutil.ignore_patterns("__pycache__"))


def test_what_is_hashed_is_what_an_evaluation_imports_and_what_hostkit_installs() -> None:
    closure = {*imported(PAYLOADS, EVALUATE, PREFLIGHT), BUNDLED_PROMPTS}
    assert len(closure) > 30
    assert set(harness.hashes(PAYLOADS)) == closure == set(DFlash().files.names)


def test_an_edit_of_the_trainer_makes_no_evaluation_another_one_and_shows_in_a_training(copy: Path) -> None:
    evaluation, training = harness.hashes(copy), harness.hashes(copy, without=())
    edited = {"dflash/training/telemetry.py", "dflash/features/queue.py", "train_drafter.py"}
    for file in edited:
        (copy / file).write_text((copy / file).read_text() + "\n# edited\n")
    assert harness.hashes(copy) == evaluation
    after = harness.hashes(copy, without=())
    assert {name for name in after if after[name] != training[name]} == edited


def test_an_edit_of_a_metric_or_a_stray_module_is_seen_and_data_beside_the_scripts_is_not(copy: Path) -> None:
    before = harness.hashes(copy)
    (copy / "responses.jsonl").write_text("{}\n")
    seen = {"dflash/evaluation/metrics.py", "dflash/target/statistics.py", "statistics.py"}
    for file in seen:
        (copy / file).write_text("# edited\n")
    after = harness.hashes(copy)
    assert {name for name in after if after[name] != before.get(name)} == seen


def test_all_that_the_preflight_imports_promises_python_3_8() -> None:
    texts = {name: (PAYLOADS / name).read_text() for name in imported(PAYLOADS, PREFLIGHT)}
    assert [
        n for n, text in texts.items() if "Python 3.8" not in text and not n.endswith("__init__.py")
    ] == []
