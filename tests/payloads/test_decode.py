"""Speculative decoding gives the target's own text, and the offline loop gives its rounds."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dflash.data.references import Reference
from dflash.drafter.model import Drafter
from dflash.evaluation.evaluator import Evaluator
from dflash.target.greedy import greedy
from dflash.target.model import Target
from tests.payloads.decode import speculate, speculate_tree

PROMPTS = [b"def close(self):\n    ", b"import", b"    for name in sorted(names):\n", b"# The "]


def reference(target: Target, prompt: bytes, tokens: int) -> Reference:
    ids = list(prompt)
    return Reference(
        prompt.decode(), "x", ids, greedy(target, ids, tokens, ()), False, "target", "t", "target"
    )


@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_output_is_the_targets_own_greedy_text(target: Target, drafter: Drafter, prompt: bytes) -> None:
    wanted = greedy(target, list(prompt), 40, ())
    assert speculate(target, drafter, list(prompt), 40).output_ids == wanted
    assert speculate_tree(target, drafter, list(prompt), 40, 12).output_ids == wanted


@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_simulated_loop_equals_the_real_one_round_by_round(
    target: Target, drafter: Drafter, prompt: bytes
) -> None:
    known = reference(target, prompt, 64)
    real = speculate(target, drafter, known.prompt_ids, 64)
    evaluator = Evaluator(drafter, target.vocabulary, drafter.config.block_size, [])
    features, _ = target.features(known.ids, drafter.config.target_layer_ids)
    result = evaluator.measure(known, features, blocks=5, seed=0)
    simulated = {a: s + 1 for a, s in result.loop_streaks.items()}
    wanted = dict(zip(real.starts, real.acceptance_lengths, strict=True))
    assert len(simulated) > 5
    assert simulated == {a: wanted[a] for a in list(wanted)[: len(simulated)]}
    assert result.tau_loop == {"rounds": len(simulated), "tokens": sum(simulated.values())}


def test_a_smaller_block_size_decodes_the_same_text_in_more_rounds(target: Target, drafter: Drafter) -> None:
    small = speculate(target, drafter, list(PROMPTS[0]), 40, block_size=3)
    usual = speculate(target, drafter, list(PROMPTS[0]), 40)
    assert small.output_ids == usual.output_ids
    assert max(small.acceptance_lengths) <= 3
    assert len(small.acceptance_lengths) > len(usual.acceptance_lengths)


def test_the_stop_token_is_kept_and_nothing_after_it(target: Target, drafter: Drafter) -> None:
    text = greedy(target, list(PROMPTS[0]), 40, ())
    stop = text[9]
    out = speculate(target, drafter, list(PROMPTS[0]), 40, stop=[stop]).output_ids
    assert out == text[: text.index(stop) + 1]


@pytest.mark.soak
def test_the_simulated_loop_equals_the_real_one_on_100_sequences(
    target: Target, drafter: Drafter, record_property: Any
) -> None:
    from dflash.tiny.stdlib_corpus import split

    text = b"\n".join(split()[1])
    rounds = 0
    for number in range(100):
        prompt = text[number * 997 : number * 997 + 24 + number % 9]
        ids = list(prompt)
        known = Reference(str(number), "x", ids, greedy(target, ids, 60, ()), False, "target", "t", "target")
        real = speculate(target, drafter, ids, 60)
        features, _ = target.features(known.ids, drafter.config.target_layer_ids)
        result = Evaluator(drafter, target.vocabulary, drafter.config.block_size, []).measure(
            known, features, 1, 0
        )
        wanted = list(zip(real.starts, real.acceptance_lengths, strict=True))
        got = [(a, s + 1) for a, s in result.loop_streaks.items()]
        assert got == wanted[: len(got)]
        rounds += len(got)
    record_property("rounds", rounds)
    assert rounds > 500


def test_an_empty_embedding_of_the_mask_is_the_targets_own(target: Target, drafter: Drafter) -> None:
    ids = drafter.block_ids(torch.tensor([[5]]))
    assert ids.tolist() == [[[5] + [257] * 7]]
