"""One tree for all budgets 16 to 1024, against the largest alone and against a tree for each; in turn, in one go.

python tests/bench/bench_ddtree.py [ROUNDS]
"""

from __future__ import annotations

import statistics
import sys
import time

import payload_models as models
import torch
from dflash.evaluation.ddtree import build_tree

BUDGETS = [16, 32, 64, 128, 256, 512, 1024]


def main() -> int:
    torch.set_num_threads(1)
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    generator = torch.Generator().manual_seed(0)
    blocks = [3 * torch.randn(15, 32000, generator=generator) for _ in range(rounds + 1)]
    labels = [block.argmax(-1).tolist() for block in blocks]

    def largest(at: int) -> object:
        return build_tree(blocks[at], BUDGETS[-1]).accepted(labels[at], BUDGETS[-1:])

    def together(at: int) -> object:
        return build_tree(blocks[at], BUDGETS[-1]).accepted(labels[at], BUDGETS)

    def each(at: int) -> object:
        return {b: build_tree(blocks[at], b).accepted(labels[at], [b])[b] for b in BUDGETS}

    seconds: dict[str, list[float]] = {"largest": [], "together": [], "each": []}
    for at in range(rounds + 1):
        assert together(at) == each(at)
        for name, way in (("largest", largest), ("together", together), ("each", each)):
            began = time.process_time()
            way(at)
            if at:
                seconds[name].append(time.process_time() - began)
    median = {name: statistics.median(times) for name, times in seconds.items()}
    print({name: f"{1000 * value:.1f} ms" for name, value in median.items()})
    print(f"a tree for each budget / together: {median['each'] / median['together']:.2f}")
    return models.report(
        {"all budgets / the largest alone": (median["together"] / median["largest"], "at most", 2.0)}
    )


if __name__ == "__main__":
    raise SystemExit(main())
