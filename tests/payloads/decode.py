"""Speculative decoding at temperature 0: draft a block, verify it with one target forward, commit, repeat.

The output equals the target's own greedy text. A round's acceptance length is its accepted drafts plus the
bonus token, as papers and servers count. The drafter's context holds verified rows only; the target's
cache is cropped by our own code to what was committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dflash.drafter.model import Context, Drafter
from dflash.evaluation.ddtree import build_tree
from dflash.evaluation.metrics import streak
from dflash.target.model import Session, Target


@dataclass
class Decoded:
    """Acceptance length and block start of each round (the last one unclipped), and the new tokens."""

    acceptance_lengths: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    output_ids: list[int] = field(default_factory=list)


@torch.no_grad()
def draft_block(
    drafter: Drafter,
    target: Target,
    context: Context,
    *,
    token: int,
    anchor: int,
    block_size: int | None = None,
) -> Tensor:
    """Raw logits [D, vocab] of slots 1.. of the block at position `anchor`, whose slot 0 is `token`."""
    ids = drafter.block_ids(torch.tensor([[token]], device=target.device), block_size)
    embedded = target.vocabulary.embed(ids).to(drafter.fc.weight.dtype)
    hidden = drafter.fill_blocks(context, torch.tensor([[anchor]], device=target.device), embedded)
    return target.vocabulary.logits(hidden[0, 0])


@torch.no_grad()
def speculate(
    target: Target,
    drafter: Drafter,
    prompt_ids: Sequence[int],
    max_new_tokens: int,
    *,
    stop: Sequence[int] = (),
    block_size: int | None = None,
) -> Decoded:
    """Decode with chains. Rounds run while a block starts within `max_new_tokens`.

    A stop token ends decoding after the round that commits it; the round counts in full, the output is cut
    just after the first stop. The prefill token belongs to no round.
    """
    session = Session(target, drafter.config.target_layer_ids)
    features, greedy = session.feed(prompt_ids)
    committed = [*prompt_ids, greedy[-1]]
    context = drafter.read_context(features.to(drafter.fc.weight.dtype))
    start = first = len(prompt_ids)
    out = Decoded()
    while start < first + max_new_tokens:
        logits = draft_block(
            drafter, target, context, token=committed[start], anchor=start, block_size=block_size
        )
        drafted = logits.float().argmax(-1).tolist()
        features, posterior = session.feed([committed[start], *drafted])
        accepted = streak([d == p for d, p in zip(drafted, posterior, strict=False)])
        committed += [*drafted[:accepted], posterior[accepted]]
        rows = accepted + 1
        session.crop(start + rows)
        context = context.extend(
            drafter.read_context(features[:, :rows].to(drafter.fc.weight.dtype), start=start)
        )
        out.acceptance_lengths.append(rows)
        out.starts.append(start)
        start += rows
        if any(token in stop for token in committed[first:]):
            break
    out.output_ids = _cut(committed[first:], stop, max_new_tokens)
    return out


@torch.no_grad()
def speculate_tree(
    target: Target,
    drafter: Drafter,
    prompt_ids: Sequence[int],
    max_new_tokens: int,
    budget: int,
    *,
    stop: Sequence[int] = (),
) -> Decoded:
    """Decode with trees of `budget` nodes.

    The target walks the tree token by token along its own greedy choice, so that no mask is needed and
    targets with recurrent layers work too: the accepted tokens are those that a masked verification of the
    whole tree would accept. It measures acceptance, not speed.
    """
    session = Session(target, drafter.config.target_layer_ids, crops=False)
    features, greedy = session.feed(prompt_ids)
    committed = [*prompt_ids, greedy[-1]]
    context = drafter.read_context(features.to(drafter.fc.weight.dtype))
    start = first = len(prompt_ids)
    out = Decoded()
    while start < first + max_new_tokens:
        tree = build_tree(draft_block(drafter, target, context, token=committed[start], anchor=start), budget)
        children = {
            (parent, token): i
            for i, (parent, token) in enumerate(zip(tree.parents, tree.tokens, strict=True), 1)
        }
        node: int | None = 0
        rows = 0
        while node is not None:
            features, greedy = session.feed([committed[-1]])
            row = drafter.read_context(features.to(drafter.fc.weight.dtype), start=start + rows)
            context = context.extend(row)
            committed.append(greedy[-1])
            node = children.get((node, greedy[-1]))
            rows += 1
        out.acceptance_lengths.append(rows)
        out.starts.append(start)
        start += rows
        if any(token in stop for token in committed[first:]):
            break
    out.output_ids = _cut(committed[first:], stop, max_new_tokens)
    return out


def _cut(tokens: list[int], stop: Sequence[int], limit: int) -> list[int]:
    at = next((i for i, token in enumerate(tokens) if token in stop), len(tokens))
    return tokens[: min(at + 1, limit)]
