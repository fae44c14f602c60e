"""Training responses that the target samples, many prompts at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dflash.data.samples import Sample
from dflash.target.model import Target


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
        fed = draw(logits.softmax(-1), generator)
        ids = torch.cat((ids, fed), dim=1)
    supervised = [False] * prompt_length + [True] * new_tokens
    return [Sample(f"sampled-{first_id + i}", row, supervised) for i, row in enumerate(ids.tolist())]


def draw(probabilities: Tensor, generator: torch.Generator, width: int = 256) -> Tensor:
    """One id [rows, 1] from each row of [rows, vocab], by the inverse of the distribution function.

    First the stretch of `width` ids in which the point falls, then the id: summing up a whole row in order,
    as torch.multinomial does, takes longer than the model itself at a vocabulary of 50,000.
    """
    rows, size = probabilities.shape
    stretches = torch.nn.functional.pad(probabilities, (0, -size % width)).view(rows, -1, width)
    ends = stretches.sum(-1, dtype=torch.float64).cumsum(-1)
    point = torch.rand(rows, 1, generator=generator, dtype=torch.float64, device=ends.device) * ends[:, -1:]
    stretch = torch.minimum(torch.searchsorted(ends, point, right=True), _last(ends))
    inside = stretches.gather(1, stretch[..., None].expand(-1, 1, width))[:, 0].to(torch.float64).cumsum(-1)
    left = point - ends.gather(1, stretch) + inside[:, -1:]
    return stretch * width + torch.minimum(torch.searchsorted(inside, left, right=True), _last(inside))


def _last(ends: Tensor) -> Tensor:
    """The last entry that has any mass: one without has the end of the one before it, `right` steps over it,
    and only a point rounded to the far end would be left behind all."""
    return (ends < ends[:, -1:]).sum(-1, keepdim=True)
