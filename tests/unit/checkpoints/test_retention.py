"""What the trainer removes next: foretold only from what is declared or stands in its argv."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hostkit.checkpoints import Candidate
from hostkit.checkpoints.retention import Retention, next_deleted, retention_of
from hostkit.inventory.models import Checkpoints


def kept(*steps: int) -> list[Candidate]:
    return [Candidate(step=step, path=f"/c/step_{step}/c.pt") for step in steps]


def rule(keep: int, every: int | None = None) -> Retention:
    return Retention(keep=keep, keep_every=every, evidence="declared in the inventory")


@pytest.mark.parametrize(
    ("steps", "keep", "every", "coming", "gone"),
    [
        ([100, 200, 300], 3, None, 400, [100]),
        ([100, 200, 300], 3, None, None, [100]),
        ([100, 200], 3, None, 300, []),
        ([100, 200, 300], 3, 100, 400, []),
        ([100, 150, 200, 250], 2, 100, 300, [150]),
        ([100, 200, 9000], 2, None, 300, [100, 200]),
        ([100, 200, 300], 2, None, 300, [100, 200]),
        ([], 1, None, 100, []),
    ],
)
def test_the_newest_stay_counted_with_the_one_that_comes(
    steps: list[int], keep: int, every: int | None, coming: int | None, gone: list[int]
) -> None:
    assert [one.step for one in next_deleted(kept(*steps), rule(keep, every), coming)] == gone


def test_it_is_what_the_bundled_trainer_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "remote_payloads"))
    from dflash.drafter import checkpoint
    from dflash.training import files

    for keep, every in ((2, 0), (3, 4), (1, 3)):
        root = tmp_path / f"{keep}-{every}"
        there = list(range(1, 9))
        for step in there:
            for name in (checkpoint.NAME, checkpoint.STATE_NAME):
                (root / f"step_{step}").mkdir(parents=True, exist_ok=True)
                (root / f"step_{step}" / name).touch()
        files.retain(root, keep, every)
        left = files.steps(root)
        foretold = [one.step for one in next_deleted(kept(*left), rule(keep, every or None), 9)]
        (root / "step_9").mkdir()
        for name in (checkpoint.NAME, checkpoint.STATE_NAME):
            (root / "step_9" / name).touch()
        assert files.retain(root, keep, every) == foretold


@pytest.mark.parametrize(
    ("saved", "argv", "expected"),
    [
        ({"keep": 3}, [], (3, None)),
        ({"keep": 3, "keep_every": 50}, ["python", "train_drafter.py", "--keep", "9"], (3, 50)),
        ({}, ["python", "/x/train_drafter.py", "--keep", "9", "--keep-every=100"], (9, 100)),
        ({}, ["python", "train_drafter.py", "--keep", "2", "--keep", "4"], (4, None)),
        ({}, ["python", "train_drafter.py"], None),
        ({}, ["python", "train_drafter.py", "--keep", "0"], None),
        ({}, ["python", "train_drafter.py", "--keep"], None),
        ({}, ["python", "train.py", "--keep", "9"], None),
        ({}, [], None),
    ],
)
def test_what_is_declared_comes_first_then_the_bundled_trainers_argv_and_nothing_else(
    saved: dict[str, Any], argv: list[str], expected: tuple[int, int | None] | None
) -> None:
    found = retention_of(Checkpoints.model_validate({"root": "/c", **saved}), argv)
    assert ((found.keep, found.keep_every) if found else None) == expected


def test_the_words_say_what_it_rests_on() -> None:
    assert rule(3, 1000).words == "the newest 3 and every 1000th step (declared in the inventory)"
