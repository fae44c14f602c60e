"""Text by the target itself: greedy references one at a time, sampled training responses in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from samples import Sample
from target import Session, Target


@torch.no_grad()
def greedy(
    target: Target,
    prompt_ids: Sequence[int],
    max_new_tokens: int,
    stop: Sequence[int],
    tick: Callable[[int], None] | None = None,
) -> list[int]:
    """The target's own continuation at temperature 0, its stop token included. No generation config is heard:
    a repetition penalty in it would give references that no greedy decoder reproduces."""
    session = Session(target, (), crops=False)
    tokens = [session.feed(prompt_ids)[1][-1]]
    while tokens[-1] not in stop and len(tokens) < max_new_tokens:
        tokens.append(session.feed([tokens[-1]])[1][-1])
        if tick:
            tick(len(tokens))
    return tokens


@torch.no_grad()
def sample_responses(
    target: Target,
    prompts: Sequence[Sequence[int]],
    new_tokens: int,
    *,
    temperature: float,
    seed: int,
    first_id: int = 0,
) -> list[Sample]:
    """Responses of exactly `new_tokens` to prompts of one length, sampled together; only they are supervised."""
    generator = torch.Generator(target.device).manual_seed(seed)
    ids = torch.tensor([list(p) for p in prompts], device=target.device)
    prompt_length = ids.shape[1]
    cache, fed = None, ids
    for _ in range(new_tokens):
        _, hidden, cache = target.read(fed, (), cache, use_cache=True)
        logits = target.vocabulary.logits(hidden[:, -1]).float() / temperature
        fed = torch.multinomial(logits.softmax(-1), 1, generator=generator)
        ids = torch.cat((ids, fed), dim=1)
    supervised = [False] * prompt_length + [True] * new_tokens
    return [Sample(f"sampled-{first_id + i}", row, supervised) for i, row in enumerate(ids.tolist())]
