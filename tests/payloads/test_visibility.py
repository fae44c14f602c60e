"""Nothing at or after an anchor leaks into its block, whatever other blocks are computed with it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from draft_config import FULL, SLIDING, DraftConfig
from drafter import Drafter
from visibility import visible


def by_definition(
    anchors: list[int], valid: list[bool], size: int, context: int, window: int | None
) -> torch.Tensor:
    """The mask of the specification, slot by slot."""
    n = len(anchors)
    mask = torch.zeros(n * size, context + n * size, dtype=torch.bool)
    for b in range(n):
        for j in range(size):
            row, position = b * size + j, anchors[b] + j
            for c in range(context):
                near = window is None or c >= position - (window - 1)
                mask[row, c] = valid[b] and c < anchors[b] and near
            for i in range(size):
                near = window is None or (i <= j and i > j - window)
                mask[row, context + b * size + i] = near
    return mask


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 20), st.booleans()), min_size=1, max_size=5),
    st.integers(2, 5),
    st.one_of(st.none(), st.integers(1, 12)),
)
def test_the_mask_is_the_one_of_the_definition(blocks: list, size: int, window: int | None) -> None:
    anchors, valid = [a for a, _ in blocks], [v for _, v in blocks]
    got = visible(torch.tensor([anchors]), size, 21, valid=torch.tensor([valid]), window=window)
    assert torch.equal(got[0], by_definition(anchors, valid, size, 21, window))


@pytest.fixture(params=["full", "sliding"])
def model(request: Any, small_config: DraftConfig) -> Drafter:
    config = small_config
    if request.param == "sliding":
        config = dataclasses.replace(config, layer_types=(SLIDING, FULL), sliding_window=7)
    return Drafter(config).reset_parameters(torch.Generator().manual_seed(3), std=0.2).eval()


def fill(
    model: Drafter, features: torch.Tensor, anchors: list[int], embedded: torch.Tensor, **kw: Any
) -> torch.Tensor:
    with torch.no_grad():
        return model.fill_blocks(model.read_context(features), torch.tensor([anchors]), embedded, **kw)


@pytest.fixture
def inputs(small_config: DraftConfig) -> tuple[torch.Tensor, list[int], torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    anchors = [4, 6, 7, 15, 15, 20]  # overlapping, equal, apart
    features = torch.randn(1, 24, small_config.feature_size, generator=generator)
    embedded = torch.randn(
        1, len(anchors), small_config.block_size, small_config.hidden_size, generator=generator
    )
    return features, anchors, embedded


def test_features_at_the_anchor_and_after_change_no_bit(model: Drafter, inputs: Any) -> None:
    features, anchors, embedded = inputs
    before = fill(model, features, anchors, embedded)
    for block, anchor in enumerate(anchors):
        other = features.clone()
        other[:, anchor:] = torch.randn_like(other[:, anchor:]) * 10
        assert torch.equal(fill(model, other, anchors, embedded)[:, block], before[:, block])


def test_the_feature_just_before_the_anchor_matters(model: Drafter, inputs: Any) -> None:
    features, anchors, embedded = inputs
    before = fill(model, features, anchors, embedded)
    for block, anchor in enumerate(anchors):
        other = features.clone()
        other[:, anchor - 1] *= -1
        assert (fill(model, other, anchors, embedded)[:, block] - before[:, block]).abs().max() > 1e-4


def test_other_blocks_do_not_matter(model: Drafter, inputs: Any) -> None:
    features, anchors, embedded = inputs
    together = fill(model, features, anchors, embedded)
    for block in range(len(anchors)):
        alone = fill(model, features, anchors[block : block + 1], embedded[:, block : block + 1])
        assert torch.allclose(together[:, block], alone[:, 0], atol=2e-6)
        changed = embedded.clone()
        changed[:, [b for b in range(len(anchors)) if b != block]] += 1
        assert torch.equal(fill(model, features, anchors, changed)[:, block], together[:, block])


def test_blocks_in_chunks_equal_blocks_at_once(model: Drafter, inputs: Any) -> None:
    features, anchors, embedded = inputs
    whole = fill(model, features, anchors, embedded)
    assert torch.allclose(fill(model, features, anchors, embedded, blocks_at_once=2), whole, atol=2e-6)


def test_blocks_that_are_not_valid_come_out_as_zeros_and_finite(model: Drafter, inputs: Any) -> None:
    features, anchors, embedded = inputs
    valid = torch.tensor([[True, False, True, True, False, True]])
    out = fill(model, features, anchors, embedded, valid=valid)
    assert torch.isfinite(out).all()
    assert not out[0, 1].any()
    assert torch.allclose(out[0, 0], fill(model, features, anchors, embedded)[0, 0], atol=2e-6)


def test_a_sliding_layer_is_causal_in_the_block_and_a_full_one_is_not(
    small_config: DraftConfig, inputs: Any
) -> None:
    features, _, embedded = inputs
    for kinds, causal in ((SLIDING, True), (FULL, False)):
        config = dataclasses.replace(small_config, layer_types=(kinds,) * 2, sliding_window=64)
        model = Drafter(config).reset_parameters(torch.Generator().manual_seed(3), std=0.2)
        before = fill(model, features, [9], embedded[:, :1])
        later = embedded[:, :1].clone()
        later[:, :, -1] += 1
        after = fill(model, features, [9], later)
        assert torch.equal(after[:, :, :-1], before[:, :, :-1]) is causal


def test_a_sliding_window_hides_what_lies_before_it(small_config: DraftConfig, inputs: Any) -> None:
    features, _, embedded = inputs
    config = dataclasses.replace(small_config, layer_types=(SLIDING,) * 2, sliding_window=7)
    model = Drafter(config).reset_parameters(torch.Generator().manual_seed(3), std=0.2)
    # Slot 1 of a block at 20 sees positions 15.. with a window of 7 that counts itself.
    before = fill(model, features, [20], embedded[:, :1])[0, 0, 0]
    hidden, seen = features.clone(), features.clone()
    hidden[:, :14] += 1  # 13 is the last that slot 0 does not see either
    seen[:, 15] += 1
    assert torch.equal(fill(model, hidden, [20], embedded[:, :1])[0, 0, 0], before)
    assert not torch.equal(fill(model, seen, [20], embedded[:, :1])[0, 0, 0], before)


def test_a_context_read_in_pieces_equals_one_read_at_once(model: Drafter, inputs: Any) -> None:
    features, anchors, embedded = inputs
    with torch.no_grad():
        context = model.read_context(features[:, :9])
        for at in range(9, 24, 5):
            context = context.extend(model.read_context(features[:, at : at + 5], start=at))
        assert context.rows == 24
        out = model.fill_blocks(context, torch.tensor([anchors]), embedded)
    assert torch.allclose(out, fill(model, features, anchors, embedded), atol=2e-6)
