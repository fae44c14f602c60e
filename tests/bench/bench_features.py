"""Feature extraction, against the bare forward of the same target; in turn, in one go.

    python tests/bench/bench_features.py [ROUNDS]

Extraction is all of it: the forward with its taps, the greedy check of every response token, the file on disk.
The bare forward is `model(input_ids)` without gradient and without a cache.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import payload_models as models
import torch
from dflash.data import reference_features
from dflash.drafter.config import spread_taps
from dflash.data.references import Reference

PROMPT, RESPONSE = 180, 520


def main() -> int:
    torch.set_num_threads(1)
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    target = models.make_target(512, 12, 16384)
    taps = spread_taps(12, 5)
    drawn = torch.randint(0, 16000, (PROMPT + RESPONSE,), generator=torch.Generator().manual_seed(0)).tolist()
    reference = Reference("p", "x", drawn[:PROMPT], drawn[PROMPT:], False, "target", "t", "target")
    ids = torch.tensor([drawn])
    bare, ours = [], []
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for turn in range(rounds + 1):
            began = time.process_time()
            target.model(input_ids=ids, use_cache=False)
            middle = time.process_time()
            features = reference_features.compute(target, reference, taps)
            reference_features.write(Path(folder) / "p.safetensors", features, {})
            end = time.process_time()
            if turn:
                bare.append(middle - began)
                ours.append(end - middle)
    ratio = statistics.median(b / o for b, o in zip(bare, ours, strict=True))
    rate = len(drawn) / statistics.median(ours)
    print(
        f"bare {statistics.median(bare):.3f} s, extraction {statistics.median(ours):.3f} s, {rate:.0f} tokens/s"
    )
    return models.report({"tokens per second, extraction / bare forward": (ratio, "at least", 0.9)})


if __name__ == "__main__":
    raise SystemExit(main())
