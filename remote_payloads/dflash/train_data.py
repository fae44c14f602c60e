"""Where training samples come from: a JSONL file, or text that the target itself continues (sampled)."""

from __future__ import annotations

import argparse
from typing import Any

import torch

import corpus
import samples
from generate import sample_responses
from refusal import Refused
from samples import Sample
from seeds import generator, seed_of
from target import Target
from train_log import TrainLog

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
    kept = args.out / f"pool-{args.pool}-{args.seed}-{args.prompt_tokens}-{args.response_tokens}.jsonl"
    if not kept.exists():
        samples.write(kept, generate_pool(args, target, tokenizer, log))
    found = samples.read(kept, tokenizer, args.max_length)
    log.event("data", file=str(kept), samples=len(found))
    return found


def generate_pool(args: argparse.Namespace, target: Target, tokenizer: Any, log: TrainLog) -> list[Sample]:
    """Prompts cut from the training half of the corpus, continued by the target at --temperature."""
    text = b"\n".join(corpus.split(args.corpus)[0]).decode("utf-8", "replace")
    ids = torch.tensor(tokenizer.encode(text[:4_000_000], add_special_tokens=False))
    starts = torch.randint(
        0, len(ids) - args.prompt_tokens, (args.pool,), generator=generator(args.seed, "pool")
    )
    pool: list[Sample] = []
    for at in range(0, args.pool, BATCH):
        prompts = [ids[s : s + args.prompt_tokens].tolist() for s in starts[at : at + BATCH].tolist()]
        pool += sample_responses(
            target,
            prompts,
            args.response_tokens,
            temperature=args.temperature,
            seed=seed_of(args.seed, "responses", at),
            first_id=at,
        )
        log.event("generated", done=len(pool), of=args.pool)
    return pool
