"""Nothing at or after an anchor leaks into its block, whatever other blocks are computed with it."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash.drafter.attention_mask import Group, group
from dflash.drafter.config import FULL, SLIDING, DraftConfig
from dflash.drafter.model import Drafter


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


def laid_out(groups: list[Group], batch: int, rows: int, context: int) -> torch.Tensor:
    """The groups' masks where they stand in the one mask of all rows; what a group leaves out, none sees."""
    whole = torch.zeros(batch, rows, context + rows, dtype=torch.bool)
    for g in groups:
        each = (g.rows.stop - g.rows.start) // g.number
        for n, mask in enumerate(g.mask.view(batch, g.number, each, -1).unbind(1)):
            at = slice(g.rows.start + n * each, g.rows.start + (n + 1) * each)
            assert set(mask.unique().tolist()) <= {0.0, -torch.inf}
            whole[:, at, : g.context] = mask[..., : g.context] == 0
            whole[:, at, context + at.start : context + at.stop] = mask[..., g.context :] == 0
    return whole


@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 20), st.booleans()), min_size=1, max_size=7),
    st.integers(2, 5),
    st.one_of(st.none(), st.integers(1, 12)),
    st.integers(1, 8),
    st.sampled_from([-1, 0, 20, 1 << 13]),
)
def test_the_masks_are_those_of_the_definition(
    blocks: list, size: int, window: int | None, at_once: int, call: int
) -> None:
    # Two samples: what one needs of the context, the other's blocks must still not see.
    anchors = torch.tensor([[a for a, _ in blocks], [21 - a for a, _ in blocks]])
    valid = torch.tensor([[v for _, v in blocks], [not v for _, v in blocks]])
    with patch("dflash.drafter.attention_mask.CALL", call):
        groups = group(anchors, size, 21, valid=valid, window=window, blocks_at_once=at_once)
    assert [g.rows.start for g in groups[1:]] == [g.rows.stop for g in groups[:-1]]
    got = laid_out(groups, 2, len(blocks) * size, 21)
    for sample in (0, 1):
        wanted = by_definition(anchors[sample].tolist(), valid[sample].tolist(), size, 21, window)
        assert torch.equal(got[sample], wanted)


def test_groups_share_a_call_where_the_masked_context_costs_less_than_one() -> None:
    near, far = torch.arange(100, 130)[None], torch.arange(100, 3100, 100)[None]
    assert [(g.number, g.context) for g in group(near, 8, 4000, blocks_at_once=6)] == [(5, 129)]
    assert [g.number for g in group(far, 8, 4000, blocks_at_once=6)] == [1] * 5
    # A shorter last group is a call of its own.
    assert [g.number for g in group(near[:, :20], 8, 4000, blocks_at_once=6)] == [3, 1]


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


def test_samples_that_attend_in_shared_calls_equal_each_alone(model: Drafter, inputs: Any) -> None:
    features, anchors, embedded = inputs
    both = torch.cat((features, features.flip(1))), torch.tensor([anchors, anchors[::-1]])
    embedded = torch.cat((embedded, embedded.flip(1)))
    with torch.no_grad():
        together = model.fill_blocks(model.read_context(both[0]), both[1], embedded, blocks_at_once=2)
        for n in (0, 1):
            part = slice(n, n + 1)
            alone = model.fill_blocks(model.read_context(both[0][part]), both[1][part], embedded[part])
            assert torch.allclose(together[part], alone, atol=2e-6)


def test_rows_given_once_equal_rows_given_in_every_slot(model: Drafter, inputs: Any) -> None:
    features, anchors, embedded = inputs
    blocks, size = embedded.shape[1:3]
    different = torch.cat((embedded[:, 0, 1:2], embedded[:, :, 0]), dim=1)  # the masks', then each anchor's
    held = torch.zeros(blocks, size, dtype=torch.long)
    held[:, 0] = torch.arange(1, blocks + 1)
    spread = different[:, held.flatten()].view_as(embedded)
    given_once = fill(model, features, anchors, different, held=held.flatten(), blocks_at_once=4)
    assert torch.allclose(given_once, fill(model, features, anchors, spread), atol=2e-6)
    single = dataclasses.replace(model.config, num_hidden_layers=1, layer_types=model.config.layer_types[:1])
    model = Drafter(single).reset_parameters(torch.Generator().manual_seed(3), std=0.2)
    given_once = fill(model, features, anchors, different, held=held.flatten())
    assert torch.allclose(given_once, fill(model, features, anchors, spread), atol=2e-6)


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
