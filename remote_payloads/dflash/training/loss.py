"""Weighted cross-entropy through a frozen head, in chunks of rows, never holding all logits.

The head is frozen, so the gradient of a row's loss with respect to its hidden state is known as soon as its
logits are: (softmax - onehot) @ head. It is made in the forward pass, chunk by chunk, and kept instead of
the logits; nothing is computed twice, as checkpointing would.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

# Below this share of scored slots, their rows are picked out first; above it, picking costs more than it saves.
WORTH_SELECTING = 0.6


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        head: Tensor,
        labels: Tensor,
        weights: Tensor,
        rows_at_once: int,
        count: bool,
    ) -> tuple[Tensor, Tensor]:
        total = torch.zeros((), device=hidden.device)
        hits: list[Tensor] = []
        gradients: list[Tensor] = []
        for at in range(0, len(labels), rows_at_once):
            rows = slice(at, at + rows_at_once)
            label, weight = labels[rows, None], weights[rows, None]
            logits = (hidden[rows].to(head.dtype) @ head.T).float()
            if count:
                hits.append(logits.argmax(-1) == labels[rows])
            slope = logits.log_softmax(-1)
            total -= (slope.gather(1, label) * weight).sum()
            slope.exp_().scatter_add_(1, label, torch.full_like(weight, -1.0)).mul_(weight)
            gradients.append((slope.to(head.dtype) @ head).to(hidden.dtype))
        ctx.save_for_backward(torch.cat(gradients) if len(gradients) > 1 else gradients[0])
        hit = torch.cat(hits) if hits else torch.zeros_like(labels, dtype=torch.bool)
        ctx.mark_non_differentiable(hit)
        return total, hit

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor, _grad_hits: Tensor) -> Any:
        (gradient,) = ctx.saved_tensors
        return gradient * grad_total, None, None, None, None, None


def block_loss(
    hidden: Tensor,
    head: Tensor,
    labels: Tensor,
    scored: Tensor,
    *,
    weights: Tensor,
    rows_at_once: int = 1024,
    count: bool = True,
) -> tuple[Tensor, Tensor]:
    """Sum of weight * cross-entropy over scored slots, and hits [B, N, D] (False where not scored,
    or not to `count`: an argmax over a large vocabulary is a pass that only a logged step needs).

    `hidden` [B, N, D, H], `labels` and `scored` [B, N, D], `weights` [D]. Divide by the summed weights of
    the scored slots of the whole (accumulated, distributed) batch.
    """
    per_row = weights.to(hidden.device) * scored
    if float(scored.float().mean()) > WORTH_SELECTING:
        flat = hidden.flatten(0, -2)
        total, hits = _ChunkedLoss.apply(
            flat, head, labels.flatten(), per_row.flatten().float(), rows_at_once, count
        )
        return total, hits.view_as(scored) & scored
    if not scored.any():
        return hidden.sum() * 0.0, torch.zeros_like(scored)
    total, row_hits = _ChunkedLoss.apply(
        hidden[scored], head, labels[scored], per_row[scored].float(), rows_at_once, count
    )
    hits = torch.zeros_like(scored)
    hits[scored] = row_hits
    return total, hits
