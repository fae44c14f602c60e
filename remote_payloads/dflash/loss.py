"""Weighted cross-entropy through a frozen head, in chunks of rows, never holding all logits.

The head is frozen, so the gradient of a row's loss with respect to its hidden state is known as soon as its
logits are: (softmax - onehot) @ head. It is made in the forward pass, chunk by chunk, and kept instead of
the logits; nothing is computed twice, as checkpointing would.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, head: Tensor, labels: Tensor, weights: Tensor, rows_at_once: int
    ) -> tuple[Tensor, Tensor]:
        total = torch.zeros((), device=hidden.device)
        hits = torch.empty(len(labels), dtype=torch.bool, device=hidden.device)
        gradient = torch.empty_like(hidden)
        for at in range(0, len(labels), rows_at_once):
            rows = slice(at, at + rows_at_once)
            logits = (hidden[rows].to(head.dtype) @ head.T).float()
            chosen = logits.gather(1, labels[rows, None])
            hits[rows] = logits.argmax(-1) == labels[rows]
            scale = logits.logsumexp(-1, keepdim=True)
            total += ((scale - chosen).squeeze(1) * weights[rows]).sum()
            slope = logits.sub_(scale).exp_()
            slope.scatter_add_(1, labels[rows, None], torch.full_like(chosen, -1.0))
            slope *= weights[rows, None]
            gradient[rows] = (slope.to(head.dtype) @ head).to(hidden.dtype)
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(hits)
        return total, hits

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor, _grad_hits: Tensor) -> Any:
        (gradient,) = ctx.saved_tensors
        return gradient * grad_total, None, None, None, None


def block_loss(
    hidden: Tensor,
    head: Tensor,
    labels: Tensor,
    scored: Tensor,
    *,
    weights: Tensor,
    rows_at_once: int = 1024,
) -> tuple[Tensor, Tensor]:
    """Sum of weight * cross-entropy over scored slots, and hits [B, N, D] (False where not scored).

    `hidden` [B, N, D, H], `labels` and `scored` [B, N, D], `weights` [D]. Divide by the summed weights of
    the scored slots of the whole (accumulated, distributed) batch.
    """
    per_row = weights.to(hidden.device).expand(labels.shape)[scored]
    total, row_hits = _ChunkedLoss.apply(  # type: ignore[no-untyped-call]
        hidden[scored], head, labels[scored], per_row, rows_at_once
    )
    hits = torch.zeros_like(scored)
    hits[scored] = row_hits
    return total, hits
