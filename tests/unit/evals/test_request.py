"""The id of an evaluation changes with everything that changes its figure, and with nothing else."""

from __future__ import annotations

import pytest

from hostkit.evals.dflash import DFlash
from hostkit.evals.request import Sample, evaluation_id
from hostkit.inventory.models import Eval

BASE = {
    "run": "drafter",
    "host": "ct129",
    "workspace": "/root/eval",
    "python": "/root/eval/.venv/bin/python",
    "target": {"model": "/models/t"},
}
SOURCE = {
    "host": "ct200",
    "path": "/w/step_1/checkpoint.pt",
    "step": 1,
    "size": 10,
    "mtime_ns": 5,
    "inode": 3,
}


def identity(source=SOURCE, hashes=None, prompts="p", quick=False, **changes):
    evaluation = Eval.model_validate(BASE | changes)
    return evaluation_id(
        "drafter",
        evaluation,
        Sample.of(evaluation, quick=quick),
        source,
        settings=DFlash().settings(evaluation),
        hashes=hashes or {"a.py": "1"},
        prompts_sha256=prompts,
    )


def test_the_same_question_has_the_same_id():
    assert identity() == identity()
    assert len(identity()) == 16


@pytest.mark.parametrize(
    "other",
    [
        {"source": SOURCE | {"mtime_ns": 6}},
        {"source": SOURCE | {"step": 2}},
        {"hashes": {"a.py": "2"}},
        {"prompts": "q"},
        {"quick": True},
        {"seed": 1},
        {"block_size": 8},
        {"thinking": True},
        {"max_prompts": 3},
        {"target": {"model": "/models/other"}},
    ],
    ids=str,
)
def test_another_question_has_another_id(other):
    assert identity(**other) != identity()


def test_limits_and_baselines_do_not_change_the_id():
    assert identity(limits={"wall": "1h"}, baselines={"z": {"drafter": "/models/z"}}) == identity()


def test_the_quick_sample_is_never_larger_than_the_full_one():
    evaluation = Eval.model_validate(BASE | {"blocks_per_prompt": 1})
    assert Sample.of(evaluation, quick=True).blocks_per_prompt == 1
