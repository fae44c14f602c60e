#!/usr/bin/env python3
"""Train a DFlash drafter on the features of a frozen target.

    python train_drafter.py --target DIR --out DIR --steps N [--data FILE.jsonl] [--recipe tiny|paper]

Writes OUT/step_N/checkpoint.pt (weights) and trainer_state.pt (resume) every --save-every steps, and one
JSON line per logging step. Several drafter ranks: torchrun --nproc-per-node N train_drafter.py ...
Run again with the same flags, it goes on where it stopped. SIGTERM saves between steps and ends well;
--save-trigger FILE saves when FILE appears; a loss that is not finite ends the run.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from dflash import events

RECIPES: dict[str, dict[str, Any]] = {
    "paper": {
        "layers": 5, "taps": None, "block_size": 16, "anchors": 512, "batch": 1, "max_length": 3072,
        "lr": 6e-4, "warmup": 0.04, "weight_decay": 0.0, "pool": 0,
    },
    "tiny": {
        "layers": 2, "taps": 3, "block_size": 8, "anchors": 12, "batch": 8, "max_length": 128,
        "lr": 1.5e-3, "warmup": 0.04, "weight_decay": 0.01, "pool": 256,
    },
}  # fmt: skip


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line; a recipe fills what was not given."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--target", type=Path, required=True, help="folder of the target model")
    add("--out", type=Path, required=True, help="root of step_N/checkpoint.pt")
    add("--steps", type=int, required=True, help="optimizer steps of the whole run (the schedule's length)")
    add("--save-every", type=int, default=2000)
    add("--log-every", type=int, default=10)
    add("--log", type=Path, help="file that JSON lines are appended to, besides stdout")
    add("--recipe", choices=sorted(RECIPES), default="paper", help="defaults of the flags below")
    data = parser.add_argument_group("data").add_argument
    data("--data", type=Path, help="JSONL of samples (see samples.py)")
    data("--thinking", action="store_true", help="render prompts with the template's thinking mode on")
    data("--max-length", type=int)
    data("--features", type=Path, help="train offline from features that store_features.py stored")
    data("--pool", type=int, help="without --data: responses to sample from the target itself")
    data("--corpus", type=Path, help="text files to cut prompts from (default: Python's standard library)")
    data("--prompt-tokens", type=int, default=32)
    data("--response-tokens", type=int, default=96)
    data("--temperature", type=float, default=0.7)
    shape = parser.add_argument_group("drafter").add_argument
    shape("--layers", type=int)
    shape("--taps", type=int, help="number of taps, spread by formula (default: as many as layers)")
    shape("--target-layer-ids", type=int, nargs="+", metavar="L", help="0-based decoder layers instead")
    shape("--block-size", type=int, help="with the anchor: 16 drafts 15")
    shape("--mask-token-id", type=int)
    shape("--heads", type=int)
    shape("--kv-heads", type=int)
    shape("--head-dim", type=int)
    shape("--intermediate", type=int)
    shape("--rope-theta", type=float)
    shape("--sliding-layers", type=int, help="how many of the first layers slide")
    shape("--sliding-window", type=int, default=2048)
    train = parser.add_argument_group("optimization").add_argument
    train("--anchors", type=int, help="blocks per sequence and step")
    train("--batch", type=int, help="sequences per micro-batch")
    train("--accumulate", type=int, default=1, help="micro-batches per step")
    train("--lr", type=float)
    train("--warmup", type=float, help="share of the steps")
    train("--clip", type=float, default=1.0)
    train("--weight-decay", type=float)
    train("--gamma", type=float, help="decay of the loss weights (default by block size)")
    train("--autocast", action="store_true", help="bf16 autocast; weights and moments stay fp32")
    train("--loss-rows", type=int, default=1024, help="rows of logits held at once")
    train("--seed", type=int, default=0)
    run = parser.add_argument_group("running").add_argument
    run("--threads", type=int, default=0, help="torch threads (0: torch's own choice)")
    run("--dtype", choices=["auto", "float32", "bfloat16"], default="auto", help="of the target")
    run("--device", default="cpu", help="of the drafter; under torchrun, cuda means cuda:LOCAL_RANK")
    run(
        "--target-devices",
        default="",
        metavar="D,D",
        help="run target workers on these devices, feeding a queue (cpu,cpu or cuda:0,cuda:1; default: inline)",
    )
    run(
        "--queue-bytes", type=int, default=2 << 30, help="features waiting between target workers and drafter"
    )
    run("--wandb", metavar="PROJECT", help="log to Weights & Biases too")
    run("--keep", type=int, default=0, help="keep the newest N checkpoints (0: all)")
    run("--keep-every", type=int, default=0, help="... and every Mth step")
    run("--save-trigger", type=Path, help="save when this file appears (it is removed)")
    run("--pace", type=float, default=0.0, metavar="SECONDS", help="wait after each step (practice runs)")
    args = parser.parse_args(argv)
    for name, value in RECIPES[args.recipe].items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    return args


def main(argv: list[str] | None = None) -> int:
    """Entry point."""
    args = arguments(argv)
    return events.guarded(lambda: train(args))


def train(args: argparse.Namespace) -> int:
    """Set up and run; heavy imports happen here, so that --help needs no torch."""
    from dflash.training.files import claimed
    from dflash.training.run import Run

    # One rank writes, so one rank holds the folder.
    with claimed(args.out) if os.environ.get("RANK", "0") == "0" else nullcontext():
        return Run(args).go()


if __name__ == "__main__":
    began = time.monotonic()
    status = main()
    print(f"ended with {status} after {time.monotonic() - began:.1f} s", file=sys.stderr)
    raise SystemExit(status)
