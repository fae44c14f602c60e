"""A training step's loss and lengths are those of the definition, and of the evaluator on the same blocks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dflash.data.references import Reference
from dflash.data.samples import Sample
from dflash.drafter.loading import load_drafter
from dflash.drafter.model import Drafter
from dflash.evaluation.evaluator import Evaluator
from dflash.features.source import batch_features
from dflash.target.model import Target
from dflash.training import blocks
from dflash.training.blocks import Blocks, loss_weights, make_blocks
from dflash.training.sampling import sample_responses
from dflash.training.trainer import DraftLoss, Recipe, StepResult, Trainer

SIZE = 8


@pytest.fixture
def trainable(drafter_folder: Any) -> Drafter:
    return load_drafter(drafter_folder).drafter.requires_grad_(True)


@pytest.fixture(scope="module")
def samples(target: Target) -> list[Sample]:
    text = [list(b"def read(self, name):\n"), list(b"class Name(object):\n  ")]
    made = sample_responses(target, text, 30, temperature=0.5, seed=3)
    return [made[0], made[1].cut(40)]


def step(drafter: Drafter, target: Target, batches: list[tuple[Blocks, torch.Tensor]]) -> StepResult:
    recipe = Recipe(steps=10, lr=0.0, warmup=0.0, clip=1.0, weight_decay=0.0, gamma=4.0, loss_rows=5)
    model = DraftLoss(drafter, loss_weights(SIZE, 4.0), 5)
    weight = sum(model.weight_of(batch) for batch, _ in batches)
    return Trainer(model, recipe, target.vocabulary).step(1, batches, weight)


def evaluator(drafter: Drafter, target: Target) -> Evaluator:
    return Evaluator(drafter, target.vocabulary, SIZE, [])


def batch_of(
    target: Target, drafter: Drafter, chosen: list[Sample], anchors: int
) -> tuple[Blocks, torch.Tensor]:
    made = make_blocks(chosen, anchors, SIZE, torch.Generator().manual_seed(1))
    return made, batch_features(target, chosen, drafter.config.target_layer_ids)


def test_the_loss_is_the_weighted_mean_over_all_scored_slots_of_all_batches(
    trainable: Drafter, target: Target, samples: list[Sample]
) -> None:
    """Slot by slot, with logits of one block at a time; tails that run over the end count with what they have."""
    got = step(trainable, target, [batch_of(target, trainable, [s], 100) for s in samples])
    total = weight = 0.0
    for sample in samples:
        rows = target.features(sample.input_ids, trainable.config.target_layer_ids)[0]
        for anchor in sample.candidates():
            with torch.no_grad():
                context = trainable.read_context(rows[None, :anchor])
                logits = evaluator(trainable, target).block_logits(context, sample.input_ids, [anchor])[0]
            for slot in range(1, SIZE):
                if anchor + slot < len(sample.input_ids):
                    w = 2.718281828459045 ** (-(slot - 1) / 4.0)
                    total -= w * float(logits[slot - 1].log_softmax(-1)[sample.input_ids[anchor + slot]])
                    weight += w
    assert got.loss == pytest.approx(total / weight, rel=1e-4)


def test_the_logged_length_is_the_evaluators_on_the_same_blocks(
    trainable: Drafter, target: Target, samples: list[Sample]
) -> None:
    """What is 98 % in training and 10 % in the evaluation is a fault of one of them: both count alike."""
    (sample,) = samples[:1]
    got = step(trainable, target, [batch_of(target, trainable, [sample], 100)])
    start = sample.supervised.index(True)
    reference = Reference(
        "x", "d", sample.input_ids[:start], sample.input_ids[start:], True, "given", "g", "given"
    )
    rows = target.features(sample.input_ids, trainable.config.target_layer_ids)[0]
    measured = evaluator(trainable, target).measure(reference, rows, 100, seed=0, loop=False)
    assert got.blocks == len(measured.blocks) == 30 - (SIZE - 1)
    assert got.streaks == sum(block.accept_len for block in measured.blocks)
    assert got.streaks > 10, "a drafter that hits nothing would prove nothing"


def test_slots_without_a_label_are_no_misses(
    trainable: Drafter, target: Target, samples: list[Sample]
) -> None:
    """Blocks that run over the end give hits to the slots that they have, and no length."""
    (sample,) = samples[:1]
    short = sample.cut(sample.supervised.index(True) + 5)
    got = step(trainable, target, [batch_of(target, trainable, [short], 100)])
    assert got.scored == [4, 3, 2, 1, 0, 0, 0]
    assert all(hit <= scored for hit, scored in zip(got.hits, got.scored, strict=True))
    assert (got.blocks, got.streaks) == (0, 0)


def test_weights_of_a_block_size_between_the_published_ones_are_said_to_be_ours() -> None:
    assert [blocks.default_gamma(size) for size in (8, 10, 16, 32)] == [4.0, 5.0, 7.0, 14.4]
