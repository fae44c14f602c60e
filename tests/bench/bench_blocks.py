"""Thirty anchors of a prompt in one forward of the drafter, against one block at a time; in turn, in one go.

    python tests/bench/bench_blocks.py [ROUNDS]

The loop is what the published module does: for each block its own call, which projects that block's context.
A second loop keeps the projected context, to show where the time goes. The budget is for the practice drafter;
on one core a larger one is bound by arithmetic that both have to do, and gains what the shared context saves.
CPU seconds of one thread.
"""

from __future__ import annotations

import statistics
import sys
import time

import payload_models as models
import torch
from dflash.evaluation.anchors import choose_anchors
from dflash.evaluation.evaluator import Evaluator

ANCHORS = 30
# hidden, draft layers, vocabulary, block, prompt, response
SHAPES = {"practice": (96, 2, 260, 8, 240, 128), "larger": (256, 5, 4096, 16, 180, 520)}


def compare(name: str, rounds: int) -> tuple[float, float, int]:
    """Ratio of times, largest difference of logits, drafted tokens that differ."""
    hidden, layers, vocab, block, prompt, response = SHAPES[name]
    target = models.make_target(hidden, 2, vocab)
    drafter = models.make_drafter(hidden, layers, vocab, target_layers=24, block_size=block)
    total = prompt + response
    ids = torch.randint(0, vocab - 4, (total,), generator=torch.Generator().manual_seed(0)).tolist()
    features = torch.randn(1, total, drafter.config.feature_size, generator=torch.Generator().manual_seed(1))
    anchors = choose_anchors(range(prompt, total - block), ANCHORS, 0, "p")
    evaluator = Evaluator(drafter, target.vocabulary, block, [])

    @torch.no_grad()
    def together() -> torch.Tensor:
        return evaluator.block_logits(drafter.read_context(features), ids, anchors)

    @torch.no_grad()
    def one_by_one() -> torch.Tensor:
        return torch.cat(
            [evaluator.block_logits(drafter.read_context(features[:, :a]), ids, [a]) for a in anchors]
        )

    @torch.no_grad()
    def with_kept_context() -> torch.Tensor:
        context = drafter.read_context(features)
        return torch.cat([evaluator.block_logits(context.crop(a), ids, [a]) for a in anchors])

    ways = {"together": together, "one by one": one_by_one, "kept context": with_kept_context}
    outputs = {way_name: way() for way_name, way in ways.items()}
    seconds: dict[str, list[float]] = {way_name: [] for way_name in ways}
    for _ in range(rounds):
        for way_name, way in ways.items():
            began = time.process_time()
            way()
            seconds[way_name].append(time.process_time() - began)
    median = {way: statistics.median(times) for way, times in seconds.items()}
    print(name, {way: f"{1000 * value:.1f} ms" for way, value in median.items()})
    print(f"{name}: kept context / together {median['kept context'] / median['together']:.2f}")
    apart = (outputs["together"] - outputs["one by one"]).abs().max().item()
    flips = int((outputs["together"].argmax(-1) != outputs["one by one"].argmax(-1)).sum())
    return median["one by one"] / median["together"], apart, flips


def main() -> int:
    torch.set_num_threads(1)
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    found = {name: compare(name, rounds) for name in SHAPES}
    return models.report(
        {
            "practice drafter, one block at a time / all together": (found["practice"][0], "at least", 10.0),
            "larger drafter, one block at a time / all together": (found["larger"][0], "at least", 1.0),
            "largest difference of logits": (max(apart for _, apart, _ in found.values()), "at most", 1e-3),
            "drafted tokens that differ": (sum(flips for *_, flips in found.values()), "at most", 0),
        }
    )


if __name__ == "__main__":
    raise SystemExit(main())
