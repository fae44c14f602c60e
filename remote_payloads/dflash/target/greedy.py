"""What the target itself writes at temperature 0, one prompt at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from dflash.target.model import Session, Target


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
