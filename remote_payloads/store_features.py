#!/usr/bin/env python3
"""Compute the features of training samples once and store them, to train without the target.

    python store_features.py --target DIR --data FILE.jsonl --out DIR --target-layer-ids 1 2 3

Goes on where it was interrupted. Size: taps * hidden * 2 bytes a token, for a 27B target 51 kB. Several samples
go through the target together: its matrices are read once for all of them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from dflash import events
from dflash.errors import Refused


def main(argv: list[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="JSONL of samples (see samples.py)")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--target-layer-ids", type=int, nargs="+", required=True, metavar="L")
    parser.add_argument("--max-length", type=int, default=3072)
    parser.add_argument(
        "--batch-tokens", type=int, default=2048, help="tokens, padding included, in one forward"
    )
    parser.add_argument("--thinking", action="store_true")
    parser.add_argument("--dtype", choices=["auto", "float32", "bfloat16"], default="auto")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args(argv)
    return events.guarded(lambda: store(args))


def store(args: argparse.Namespace) -> int:
    """Store what is not stored yet; files of another origin are refused, not mixed."""
    import torch

    from dflash.data import samples
    from dflash.features import stored
    from dflash.features.source import Origin, batch_features
    from dflash.target.dtype import target_dtype
    from dflash.target.identity import identify
    from dflash.target.model import Target

    if args.threads:
        torch.set_num_threads(args.threads)
    dtype = target_dtype(args.target, args.dtype)
    target = Target.load(args.target, dtype, args.device)
    tokenizer = samples.open_tokenizer(args.target)
    fingerprint = identify(args.target)["fingerprint"]
    origin = Origin(fingerprint, tuple(args.target_layer_ids), str(dtype).removeprefix("torch."))
    found = samples.read(args.data, tokenizer, args.max_length, args.thinking)
    samples.require_known(found, len(target.vocabulary.embedding), args.data)
    todo = []
    for number, sample in enumerate(found):
        file = stored.file_of(args.out, number)
        if not file.exists():
            todo.append(number)
            continue
        kept, _, theirs = stored.read(file)
        origin.require(theirs)
        if kept.input_ids != sample.input_ids:
            raise Refused(f"{file} holds another sample than line {number + 1} of the data", "another --out")
    done = len(found) - len(todo)
    if done:
        events.emit("progress", phase="features", done=done, of=len(found))
    lengths = [len(found[n].input_ids) for n in todo]
    for part in batches(lengths, args.batch_tokens):
        began = time.monotonic()
        chosen = [found[todo[i]] for i in part]
        features = batch_features(target, chosen, origin.taps).cpu()
        for i, sample, rows in zip(part, chosen, features, strict=True):
            file = stored.file_of(args.out, todo[i])
            stored.write(file, sample, rows[: len(sample.input_ids)], origin)
        done += len(part)
        rate = sum(lengths[i] for i in part) / (time.monotonic() - began)
        events.emit("progress", phase="features", done=done, of=len(found), tokens_per_s=round(rate, 1))
    events.emit("done", result=str(args.out), samples=len(found))
    return 0


def batches(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Indices in groups of at most `tokens` with padding (one sample at least), like lengths together."""
    group: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda n: lengths[n]):
        if group and lengths[i] * (len(group) + 1) > tokens:
            yield group
            group = []
        group.append(i)
    if group:
        yield group


if __name__ == "__main__":
    raise SystemExit(main())
