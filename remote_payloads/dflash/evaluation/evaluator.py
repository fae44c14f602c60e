"""One prompt's blocks: all uniform anchors in one drafter forward, then the simulated decoding loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from dflash.data.references import Reference
from dflash.drafter.model import Context, Drafter
from dflash.errors import Refused
from dflash.evaluation.anchors import candidates, choose_anchors
from dflash.evaluation.ddtree import build_tree
from dflash.evaluation.metrics import coverage_streak, distinct_ngram_rate, ranks_of, streak
from dflash.target.embeddings import Vocabulary


@dataclass(frozen=True)
class Block:
    """What one block's draft is worth against the reference; lengths without anchor and bonus."""

    anchor: int
    accept_len: int
    accept_len_top4_oracle: int
    accept_len_top8_oracle: int
    ddtree: dict[str, int]
    hits: list[int]


@dataclass
class PromptResult:
    """Blocks of a prompt, its simulated loop, and how repetitive its reference is."""

    id: str
    domain: str
    blocks: list[Block]
    context_tokens: int
    tau_loop: dict[str, Any] | None = None
    distinct_ngram_rate: float | None = None
    loop_streaks: dict[int, int] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As it stands in the result."""
        document = asdict(self)
        del document["loop_streaks"]
        return document


class Evaluator:
    """A drafter and the target's vocabulary, measured at one block size."""

    def __init__(
        self,
        drafter: Drafter,
        vocabulary: Vocabulary,
        block_size: int,
        budgets: Sequence[int],
        blocks_at_once: int = 6,
    ) -> None:
        self.drafter, self.vocabulary = drafter, vocabulary
        self.block_size, self.budgets = block_size, sorted(budgets)
        # Six, as measured: fewer copy the context more often, more multiply more of each other's masked rows.
        self.blocks_at_once = blocks_at_once
        self.dtype = drafter.fc.weight.dtype

    @torch.no_grad()
    def measure(
        self, reference: Reference, features: Tensor, blocks: int, seed: int, loop: bool = True
    ) -> PromptResult:
        """Measure up to `blocks` anchors of a reference with its features [S, taps * H]."""
        drafted = self.block_size - 1
        possible = candidates(len(reference.prompt_ids), len(reference.ids), drafted)
        chosen = choose_anchors(possible, blocks, seed, reference.prompt_id)
        context = self.drafter.read_context(features[None].to(self.dtype))
        found = [
            self._block(reference, anchor, logits)
            for anchor, logits in zip(chosen, self._logits(context, reference.ids, chosen), strict=True)
        ]
        result = PromptResult(
            reference.prompt_id,
            reference.domain,
            found,
            len(reference.ids),
            distinct_ngram_rate=distinct_ngram_rate(reference.response_ids),
        )
        if loop and len(possible):
            self._loop(result, context, reference, possible)
        return result

    @torch.no_grad()
    def decisions(self, reference: Reference, features: Tensor, blocks: int, seed: int) -> Tensor:
        """The drafted tokens [blocks, D] at the anchors that `measure` takes."""
        possible = candidates(len(reference.prompt_ids), len(reference.ids), self.block_size - 1)
        chosen = choose_anchors(possible, blocks, seed, reference.prompt_id)
        context = self.drafter.read_context(features[None].to(self.dtype))
        drafted = [logits.argmax(-1) for logits in self._logits(context, reference.ids, chosen)]
        return torch.stack(drafted) if drafted else torch.zeros(0, self.block_size - 1, dtype=torch.long)

    def block_logits(self, context: Context, ids: Sequence[int], anchors: Sequence[int]) -> Tensor:
        """Raw logits [N, D, vocab] of blocks at `anchors`, computed together over one context."""
        at = torch.tensor([list(anchors)])
        # All masks are alike: the first row is theirs, then the anchors' follow.
        tokens = torch.tensor([[self.drafter.config.mask_token_id, *(ids[a] for a in anchors)]])
        embedded = self.vocabulary.embed(tokens).to(self.dtype)
        held = torch.zeros(len(anchors), self.block_size, dtype=torch.long)
        held[:, 0] = torch.arange(1, len(anchors) + 1)
        hidden = self.drafter.fill_blocks(
            context, at, embedded, held=held.flatten(), blocks_at_once=self.blocks_at_once
        )
        # As one matrix: in three dimensions it would be a product per block.
        rows = hidden[0].flatten(0, 1)
        logits = self.vocabulary.logits(rows).float().view(*hidden.shape[1:3], -1)
        if not torch.isfinite(logits.amax()):
            raise Refused("the drafter's logits are not finite", "check its weights and dtype; never float16")
        return logits

    def _logits(self, context: Context, ids: Sequence[int], anchors: Sequence[int]) -> Iterator[Tensor]:
        """All blocks' logits, a few blocks at a time where the vocabulary is large (at most 256 MiB)."""
        bytes_per_block = (self.block_size - 1) * self.vocabulary.size * 4
        step = max(1, (256 << 20) // bytes_per_block)
        for first in range(0, len(anchors), step):
            yield from self.block_logits(context, ids, anchors[first : first + step])

    def _block(self, reference: Reference, anchor: int, logits: Tensor) -> Block:
        labels = reference.ids[anchor + 1 : anchor + self.block_size]
        ranks = ranks_of(logits, torch.tensor(labels)).tolist()
        tree: dict[int, int] = {}
        if self.budgets:
            tree = build_tree(logits, self.budgets[-1]).accepted(labels, self.budgets)
        return Block(
            anchor=anchor,
            accept_len=coverage_streak(ranks, 1),
            accept_len_top4_oracle=coverage_streak(ranks, 4),
            accept_len_top8_oracle=coverage_streak(ranks, 8),
            ddtree={str(budget): length for budget, length in tree.items()},
            hits=[int(rank == 0) for rank in ranks],
        )

    def _loop(self, result: PromptResult, context: Context, reference: Reference, possible: range) -> None:
        """Greedy decoding replayed on the reference: each round starts where the last one ended.

        Rounds without all labels after their anchor are left out, as their end is unknown.
        """
        known = {block.anchor: block.accept_len for block in result.blocks}
        anchor, rounds, tokens = possible.start, 0, 0
        while anchor in possible:
            if anchor not in known:
                logits = self.block_logits(context.crop(anchor), reference.ids, [anchor])[0]
                labels = reference.ids[anchor + 1 : anchor + self.block_size]
                known[anchor] = streak(
                    [g == y for g, y in zip(logits.argmax(-1).tolist(), labels, strict=True)]
                )
            result.loop_streaks[anchor] = known[anchor]
            rounds += 1
            tokens += known[anchor] + 1
            anchor += known[anchor] + 1
        result.tau_loop = {"rounds": rounds, "tokens": tokens}
