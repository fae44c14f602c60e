"""Training step and memory of our loss, against a plain cross-entropy over all logits; in turn, in one go.

    python tests/bench/bench_loss.py [ROUNDS]

The step: the tiny model of the practice runs, same blocks, same features. The memory: vocabulary 150,000, 64
blocks of 15 drafted tokens, peak resident bytes over what stood before, each in a process of its own.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time

import payload_models as models
import torch
import torch.nn.functional as F
from dflash.training.blocks import Blocks, loss_weights, make_blocks
from dflash.drafter.model import Drafter
from dflash.training.loss import block_loss
from dflash.data.samples import Sample
from dflash.data.seeds import generator
from torch import Tensor
from dflash.training.trainer import DraftLoss, Recipe, Trainer
from dflash.target.embeddings import Vocabulary

VOCAB, HIDDEN, BLOCKS, DRAFTED = 150_000, 256, 64, 15


def plain(hidden: Tensor, head: Tensor, labels: Tensor, scored: Tensor, weights: Tensor) -> Tensor:
    """The loss as it is usually written: all logits, one cross-entropy, weights and mask."""
    logits = (hidden @ head.T).float()
    each = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none").view_as(labels)
    return (each * weights * scored).sum()


class PlainStep:
    """A training step as it is usually written: same drafter, plain loss, AdamW as it comes."""

    def __init__(self, drafter: Drafter, vocabulary: Vocabulary, weights: Tensor) -> None:
        self.drafter, self.vocabulary, self.weights = drafter, vocabulary, weights
        self.optimizer = torch.optim.AdamW(drafter.parameters(), lr=1e-3, weight_decay=0.01)

    def step(self, blocks: Blocks, features: Tensor) -> float:
        embedded = self.vocabulary.embed(self.drafter.block_ids(blocks.anchor_tokens()))
        hidden = self.drafter.fill_blocks(
            self.drafter.read_context(features), blocks.anchors, embedded, valid=blocks.valid
        )
        total = plain(hidden, self.vocabulary.head, blocks.labels, blocks.scored, self.weights)
        loss = total / (self.weights * blocks.scored).sum()
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.drafter.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()


def step_ratio(rounds: int) -> float:
    """Tokens per CPU second of a training step, ours over plain: the median of pairs, in turn first."""
    target = models.make_target(128, 6, 260)
    drafter = models.make_drafter(128, 2, 260, target_layers=6, block_size=8)
    samples = [
        Sample(str(i), [(7 * i + t) % 256 for t in range(128)], [t >= 32 for t in range(128)])
        for i in range(8)
    ]
    features = torch.randn(8, 128, drafter.config.feature_size, generator=torch.Generator().manual_seed(0))
    recipe = Recipe(steps=1000, lr=1e-3, warmup=0.04, clip=1.0, weight_decay=0.01, gamma=4.0)
    copies = [Drafter(drafter.config).reset_parameters(torch.Generator().manual_seed(1)) for _ in range(2)]
    weights = loss_weights(8, 4.0)
    ours = Trainer(DraftLoss(copies[0], weights, 1024), recipe, target.vocabulary)
    theirs = PlainStep(copies[1], target.vocabulary, torch.tensor(weights[1:]))
    steps = {
        "ours": lambda n, blocks: (
            ours.step(n, [(blocks, features)], ours.model.weight_of(blocks), count=False).loss
        ),
        "plain": lambda n, blocks: theirs.step(blocks, features),
    }
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(1, rounds + 2):
        blocks = make_blocks(samples, 12, 8, generator(0, number))
        order = list(steps.items())
        losses = {}
        for name, step in order if number % 2 else reversed(order):
            began = time.process_time()
            losses[name] = step(number, blocks)
            if number > 1:
                seconds[name].append(time.process_time() - began)
        if number == 1:
            assert abs(losses["ours"] - losses["plain"]) < 1e-3, losses
    ratio = statistics.median(p / o for p, o in zip(seconds["plain"], seconds["ours"], strict=True))
    speeds = {name: f"{8 * 128 / statistics.median(times):.0f} tokens/s" for name, times in seconds.items()}
    print(speeds)
    return ratio


def peak(kind: str) -> int:
    """Peak resident bytes of one forward and backward at a large vocabulary, over what stood before."""
    g = torch.Generator().manual_seed(0)
    head = torch.randn(VOCAB, HIDDEN, generator=g)
    hidden = torch.randn(1, BLOCKS, DRAFTED, HIDDEN, generator=g).requires_grad_()
    labels = torch.randint(0, VOCAB, (1, BLOCKS, DRAFTED), generator=g)
    scored = torch.ones_like(labels, dtype=torch.bool)
    weights = torch.tensor(loss_weights(DRAFTED + 1, 7.0)[1:])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if kind == "ours":
        block_loss(hidden, head, labels, scored, weights=weights, rows_at_once=64)[0].backward()
    else:
        plain(hidden, head, labels, scored, weights).backward()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024


def main() -> int:
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["peak"]:
        print(peak(sys.argv[2]))
        return 0
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    ratio = step_ratio(rounds)
    memory = {}
    for kind in ("ours", "plain"):
        done = subprocess.run(
            [sys.executable, __file__, "peak", kind], capture_output=True, text=True, check=True
        )
        memory[kind] = int(done.stdout)
    print({name: f"{used / 2**20:.0f} MiB" for name, used in memory.items()})
    return models.report(
        {
            "tokens per second, ours / plain": (ratio, "at least", 1.0),
            "peak memory of the loss at 150,000 tokens, ours / plain": (
                memory["ours"] / memory["plain"],
                "at most",
                0.2,
            ),
        }
    )


if __name__ == "__main__":
    raise SystemExit(main())
