"""Who sees whom: the attention mask of many blocks over one context, by position against anchor.

Visibility compares positions with the anchor, never block numbers: blocks overlap in training, and a
block number would let one block read features of tokens that another one has yet to predict.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# What one more call of attention costs, in scores of a head: below that, scores of masked context are cheaper.
CALL = 1 << 13


@dataclass(frozen=True)
class Group:
    """Some blocks that attend in one call, as `number` batches that share the context and not the blocks.

    Their rows; which of the rows that ask are theirs; how many rows of the context the last of them needs; and
    what is added to their scores [B * number, 1, asking, keys]: 0 where a query sees a key, else -inf.
    """

    rows: slice
    asking: slice
    context: int
    number: int
    mask: Tensor

    def queries(self, x: Tensor) -> Tensor:
        """This group's of the rows that ask [B, rows, heads, size], as [B * number, heads, asking, size]."""
        return x[:, self.asking].reshape(len(x) * self.number, -1, *x.shape[2:]).transpose(1, 2)

    def keys(self, context: Tensor, own: Tensor) -> Tensor:
        """Context and own rows [B, rows, heads, size] of each batch, as [B * number, heads, keys, size]."""
        before = context[:, None, : self.context].expand(-1, self.number, -1, -1, -1)
        rows = own[:, self.rows].view(len(own), self.number, -1, *own.shape[2:])
        return torch.cat((before, rows), dim=2).flatten(0, 1).transpose(1, 2)

    def only(self, drafted: Tensor, block_size: int) -> Group:
        """The same where `drafted_rows` alone ask."""
        first, last = (row - row // block_size for row in (self.rows.start, self.rows.stop))
        mask = self.mask.index_select(2, drafted[: (last - first) // self.number])
        return Group(self.rows, slice(first, last), self.context, self.number, mask)


def drafted_rows(blocks: int, block_size: int, device: torch.device | None = None) -> Tensor:
    """Which rows of blocks are drafted: all but each block's first."""
    return torch.arange(blocks * block_size, device=device).view(blocks, block_size)[:, 1:].flatten()


def group(
    anchors: Tensor,
    block_size: int,
    context: int,
    *,
    dtype: torch.dtype = torch.float32,
    valid: Tensor | None = None,
    window: int | None = None,
    blocks_at_once: int = 16,
) -> list[Group]:
    """Cut blocks at `anchors` [B, blocks] into groups: blocks cannot see each other, so keys of other blocks than
    the `blocks_at_once` of a batch, and context after a group's last anchor, are neither masked nor multiplied;
    and no mask is ever quadratic in the blocks.

    Masks are summands from the start: of a mask of truths, every layer would make one again.
    """
    batch, blocks = anchors.shape
    before = _summand(_seen_context(anchors, block_size, context, valid, window), dtype)
    before = before.expand(-1, -1, block_size, -1)
    own = _summand(_seen_own(min(blocks, blocks_at_once), block_size, window, anchors.device), dtype)
    last = [min(context, anchor) for anchor in anchors.amax(0).tolist()]
    found = []
    at = 0
    while at < blocks:
        end = min(at + blocks_at_once, blocks)
        each, number, limit = end - at, 1, max(last[at:end])
        while end + each <= blocks:
            further = max(limit, *last[end : end + each])
            if (further - limit) * (end - at) * block_size > CALL:
                break
            end, number, limit = end + each, number + 1, further
        seen = before[:, at:end, :, :limit].view(batch, number, each, block_size, limit)
        within = own[:each, :, : each * block_size].expand(batch, number, -1, -1, -1)
        mask = torch.cat((seen, within), dim=-1).view(batch * number, 1, each * block_size, -1)
        rows = slice(at * block_size, end * block_size)
        found.append(Group(rows, rows, limit, number, mask))
        at = end
    return found


def _seen_context(
    anchors: Tensor, block_size: int, context: int, valid: Tensor | None, window: int | None
) -> Tensor:
    """Mask [B, blocks, block_size or 1, context], True where a slot sees a row of the context.

    Anchors are absolute positions, also of the context rows, which are 0..context-1. Full layers: all of the
    context before the anchor, for all slots alike. With a `window` (sliding layers; the query itself counts):
    the part of it within the window. A block that is not `valid` sees none of it; its output means nothing.
    """
    rows = torch.arange(context, device=anchors.device)
    seen = rows < anchors[..., None, None]
    if valid is not None:
        seen = seen & valid[..., None, None]
    if window is not None:
        query = anchors[..., None] + torch.arange(block_size, device=anchors.device)
        seen = seen & (rows > query[..., None] - window)
    return seen


def _seen_own(blocks: int, block_size: int, window: int | None, device: torch.device) -> Tensor:
    """Mask [blocks, block_size, blocks * block_size], True where a slot sees a row of these blocks: all of its
    own block, so that no query is left without a key; with a `window`, its part within it, causally."""
    number = torch.arange(blocks * block_size, device=device)
    block = number // block_size
    seen = block[:, None] == block
    if window is not None:
        back = number[:, None] - number
        seen = seen & (back >= 0) & (back < window)
    return seen.view(blocks, block_size, -1)


def _summand(seen: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.where(seen, 0.0, -torch.inf).to(dtype)
