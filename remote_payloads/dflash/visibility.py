"""Who sees whom: the attention mask of many blocks over one context, by position against anchor.

Visibility compares positions with the anchor, never block numbers: blocks overlap in training, and a
block number would let one block read features of tokens that another one has yet to predict.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


def visible(
    anchors: Tensor, block_size: int, context: int, *, valid: Tensor | None = None, window: int | None = None
) -> Tensor:
    """Mask [batch, blocks * block_size, context + blocks * block_size], True where a query sees a key.

    `anchors` [batch, blocks] are absolute positions, also of the context rows, which are 0..context-1.
    Full layers: all of the context before the anchor, and the whole own block. With a `window` (sliding
    layers; the query itself counts): the context within it, and the own block causally.
    A block that is not `valid` sees only itself, so that no row is empty; its output means nothing.
    """
    batch, blocks = anchors.shape
    device = anchors.device
    rows = torch.arange(context, device=device)
    before = rows < anchors[..., None]
    if valid is not None:
        before = before & valid[..., None]
    seen = before[:, :, None, :].expand(batch, blocks, block_size, context)
    number = torch.arange(blocks * block_size, device=device)
    block, slot = number // block_size, number % block_size
    own = block[:, None] == block
    if window is not None:
        query = anchors[..., None] + torch.arange(block_size, device=device)
        seen = seen & (rows > query[..., None] - window)
        own = own & (slot <= slot[:, None]) & (slot > slot[:, None] - window)
    return torch.cat(
        (seen.reshape(batch, blocks * block_size, context), own.expand(batch, *own.shape)), dim=-1
    )


@dataclass(frozen=True)
class Group:
    """Some blocks that attend together: their rows, how much context they need, their mask [B, 1, rows, keys]."""

    rows: slice
    context: int
    mask: Tensor


def group(
    anchors: Tensor,
    block_size: int,
    context: int,
    *,
    valid: Tensor | None = None,
    window: int | None = None,
    blocks_at_once: int = 16,
) -> list[Group]:
    """Cut blocks into groups: blocks cannot see each other, so keys of other groups, and context after a
    group's last anchor, are neither masked nor multiplied; and no mask is ever quadratic in the blocks."""
    last = anchors.amax(0).tolist()
    found = []
    for at in range(0, anchors.shape[1], blocks_at_once):
        part = slice(at, at + blocks_at_once)
        limit = min(context, max(last[part]))
        mask = visible(
            anchors[:, part],
            block_size,
            limit,
            valid=None if valid is None else valid[:, part],
            window=window,
        )
        rows = slice(at * block_size, at * block_size + mask.shape[1])
        found.append(Group(rows, limit, mask[:, None]))
    return found
