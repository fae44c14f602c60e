"""Where training samples come from: a JSONL file, or text that the target itself continues (sampled).

A pool is kept batch by batch while it grows: a killed run goes on with the next batch.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import time
from pathlib import Path
from typing import Any

import torch

from dflash.data import samples
from dflash.data.samples import Sample
from dflash.data.seeds import generator, seed_of
from dflash.errors import Refused
from dflash.target.identity import identify
from dflash.target.model import Target
from dflash.tiny import stdlib_corpus
from dflash.training.log import TrainLog
from dflash.training.sampling import sample_responses

BATCH = 64


def load_samples(args: argparse.Namespace, target: Target, tokenizer: Any, log: TrainLog) -> list[Sample]:
    """The samples of --data, or a pool generated once and kept beside the checkpoints."""
    if args.data:
        found = samples.read(args.data, tokenizer, args.max_length, args.thinking)
        samples.require_known(found, len(target.vocabulary.embedding), args.data)
        log.event("data", file=str(args.data), samples=len(found))
        return found
    if args.pool <= 0:
        raise Refused(
            "no training data", "--data FILE.jsonl, or --pool N to sample N responses from the target"
        )
    kept = args.out / pool_name(args)
    if not kept.exists():
        parts = kept.with_suffix(".parts")
        samples.write(kept, generate_pool(args, target, tokenizer, log, parts))
        shutil.rmtree(parts)
    found = samples.read(kept, tokenizer, args.max_length)
    log.event("data", file=str(kept), samples=len(found))
    return found


def pool_name(args: argparse.Namespace) -> str:
    """A name that all which decides the pool is in: another target's responses are not this one's."""
    decides = [args.temperature, str(args.corpus), identify(args.target)["fingerprint"]]
    digest = hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:8]
    return f"pool-{args.pool}-{args.seed}-{args.prompt_tokens}-{args.response_tokens}-{digest}.jsonl"


def generate_pool(
    args: argparse.Namespace, target: Target, tokenizer: Any, log: TrainLog, parts: Path
) -> list[Sample]:
    """Prompts cut from the training half of the corpus, continued by the target at --temperature."""
    text = b"\n".join(stdlib_corpus.split(args.corpus)[0]).decode("utf-8", "replace")
    ids = torch.tensor(tokenizer.encode(text[:4_000_000], add_special_tokens=False))
    starts = torch.randint(
        0, len(ids) - args.prompt_tokens, (args.pool,), generator=generator(args.seed, "pool")
    )
    pool: list[Sample] = []
    whole = args.prompt_tokens + args.response_tokens
    for at in range(0, args.pool, BATCH):
        part, rate = parts / f"{at:08d}.jsonl", {}
        if not part.exists():
            began = time.monotonic()
            prompts = [ids[s : s + args.prompt_tokens].tolist() for s in starts[at : at + BATCH].tolist()]
            found = sample_responses(
                target,
                prompts,
                args.response_tokens,
                temperature=args.temperature,
                seed=seed_of(args.seed, "responses", at),
                first_id=at,
            )
            samples.write(part, found)
            made = len(found) * args.response_tokens
            rate = {"tokens_per_s": round(made / (time.monotonic() - began), 1)}
        pool += samples.read(part, tokenizer, whole)
        log.event("generated", done=len(pool), of=args.pool, **rate)
    return pool
