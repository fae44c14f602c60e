"""One drafter, one optimizer: turns blocks and features into steps, and into a state that resumes exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dflash.drafter.model import Drafter
from dflash.target.embeddings import Vocabulary
from dflash.training.blocks import Blocks
from dflash.training.learning_rate import learning_rate
from dflash.training.loss import block_loss


@dataclass(frozen=True)
class Recipe:
    """Numbers of the optimization; the rest is in the drafter's config."""

    steps: int
    lr: float
    warmup: float
    clip: float
    weight_decay: float
    gamma: float
    autocast: bool = False
    loss_rows: int = 1024


@dataclass
class StepResult:
    """Loss (weighted mean), gradient norm before clipping, and counts per slot: hits, scored, alive."""

    loss: float
    grad_norm: float
    lr: float
    hits: list[int]
    scored: list[int]
    streaks: int
    blocks: int

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.grad_norm)


class DraftLoss(nn.Module):
    """Drafter and loss as one module, so that data parallelism sees a single forward."""

    def __init__(self, drafter: Drafter, weights: Sequence[float], rows_at_once: int) -> None:
        super().__init__()
        self.drafter = drafter
        self.rows_at_once = rows_at_once
        self.slot_weights = torch.tensor(weights[1:])

    def forward(
        self, features: Tensor, embedded: Tensor, blocks: Blocks, head: Tensor, count: bool = True
    ) -> tuple[Tensor, Tensor]:
        context = self.drafter.read_context(features)
        hidden = self.drafter.fill_blocks(context, blocks.anchors, embedded, valid=blocks.valid)
        return block_loss(
            hidden,
            head,
            blocks.labels,
            blocks.scored,
            weights=self.slot_weights,
            rows_at_once=self.rows_at_once,
            count=count,
        )

    def weight_of(self, blocks: Blocks) -> float:
        """Summed slot weights of the scored slots: the loss's denominator."""
        return float((self.slot_weights * blocks.scored.sum((0, 1)).cpu()).sum())


class Trainer:
    """AdamW on fp32 weights; the schedule is a function of the step, so that there is nothing to drift."""

    def __init__(self, model: DraftLoss, recipe: Recipe, vocabulary: Vocabulary, wrap: Any = None) -> None:
        self.model, self.recipe, self.vocabulary = model, recipe, vocabulary
        self.forward: Any = wrap(model) if wrap else model
        decayed = [p for p in model.parameters() if p.dim() > 1]
        others = [p for p in model.parameters() if p.dim() <= 1]
        self.optimizer = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": recipe.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=recipe.lr,
            fused=True,
        )

    def step(
        self,
        number: int,
        batches: Sequence[tuple[Blocks, Tensor]],
        total_weight: float,
        *,
        world: int = 1,
        count: bool = True,
    ) -> StepResult:
        """One optimizer step over accumulated batches of (blocks, features).

        `total_weight` is the denominator over all batches and ranks; gradients are averaged over `world`
        ranks by the wrapper, hence the factor. Nothing is updated when loss or gradient is not finite.
        Hits are counted on request.
        """
        rate = learning_rate(number, self.recipe.steps, self.recipe.lr, warmup=self.recipe.warmup)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        depth = batches[0][0].labels.shape[-1]
        hits, scored = torch.zeros(depth, dtype=torch.long), torch.zeros(depth, dtype=torch.long)
        loss_sum, streaks, whole_blocks = 0.0, 0, 0
        for index, (blocks, features) in enumerate(batches):
            last = index == len(batches) - 1
            sync: Any = (
                nullcontext() if last or not hasattr(self.forward, "no_sync") else self.forward.no_sync()
            )
            with sync:
                part, part_hits = self._forward(blocks, features, count)
                (part * (world / total_weight)).backward()
            loss_sum += float(part.detach())
            if not count:
                continue
            hits += part_hits.sum((0, 1)).cpu()
            scored += blocks.scored.sum((0, 1)).cpu()
            whole = blocks.scored.all(-1)
            streaks += int(part_hits.cumprod(-1).sum(-1)[whole].sum())
            whole_blocks += int(whole.sum())
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip))
        # With ranks, this is the rank's share of the loss; the caller adds the shares up.
        result = StepResult(
            loss_sum / total_weight, norm, rate, hits.tolist(), scored.tolist(), streaks, whole_blocks
        )
        if result.finite:
            self.optimizer.step()
        return result

    def _forward(self, blocks: Blocks, features: Tensor, count: bool) -> tuple[Tensor, Tensor]:
        drafter = self.model.drafter
        weight = drafter.fc.weight
        ids = drafter.block_ids(blocks.anchor_tokens())
        embedded = self.vocabulary.embed(ids).to(weight.dtype)
        with torch.autocast(weight.device.type, torch.bfloat16, enabled=self.recipe.autocast):
            out: tuple[Tensor, Tensor] = self.forward(
                features.to(weight.dtype), embedded, blocks, self.vocabulary.head, count
            )
        return out

    def state(self) -> dict[str, Any]:
        """Everything a resume needs beyond the flags: fp32 weights and moments, as plain data."""
        return {
            "config": self.model.drafter.config.document("float32"),
            "weights": {n: p.detach().cpu() for n, p in self.model.drafter.named_parameters()},
            "optimizer": self.optimizer.state_dict(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.model.drafter.load_state_dict(state["weights"], strict=True)
        self.optimizer.load_state_dict(state["optimizer"])
