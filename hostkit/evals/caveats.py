"""What is said beside a figure, so that nobody discards good work or keeps bad. Pure."""

from __future__ import annotations

import statistics
from typing import Any

from hostkit.evals.compare import FEW_PROMPTS
from hostkit.evals.results import EvalResult
from hostkit.formatting import age

MEAN_TOLERANCE = 0.01  # between a mean that a harness wrote and that of its blocks


def caveats(result: EvalResult, *, lag: dict[str, Any] | None = None) -> list[str]:
    """Return the caveats of a result; `lag` is how far the checkpoint is behind the live run."""
    found = []
    coverage, settings = result.coverage, result.settings
    if coverage.partial:
        reasons = "; ".join(f"{item.prompt}: {item.reason}" for item in coverage.missing[:3])
        more = f" and {len(coverage.missing) - 3} more" if len(coverage.missing) > 3 else ""
        found.append(
            f"PARTIAL: {coverage.prompts_done} of {coverage.prompts_asked} prompts measured ({reasons}{more})"
        )
    if coverage.prompts_done < FEW_PROMPTS:
        found.append(
            f"{coverage.prompts_done} prompts are too few to generalise: blocks of one prompt resemble each other"
        )
    domains = [name for name, part in coverage.by_domain.items() if part.done]
    if len(domains) == 1:
        found.append(f"all prompts are of one domain ({domains[0]}): other domains are unknown")
    trained = settings.trained_block_size
    if trained is not None and trained != settings.block_size:
        found.append(
            f"evaluated at block {settings.block_size}, trained at block {trained}: block sizes change the figure"
        )
    if lag and lag.get("steps"):
        found.append(f"step {result.checkpoint.step} is {lag_words(lag)} behind the live weights")
    agreement = result.target_agreement
    if agreement is not None and not agreement.passed:
        rate = "not measured" if agreement.rate is None else f"{agreement.rate:.1%}"
        found.append(
            f"the target agrees with its own references in {rate} only: wrong template, thinking flag, tokenizer or "
            "revision are the likely causes; the figures mean little until this is fixed"
        )
    if settings.metric_definition == "unverified":
        found.append("the definition of these metrics is unverified: do not compare them")
    return found + doubts(result)


def doubts(result: EvalResult) -> list[str]:
    """Return why the headline figure itself is not to be believed: no number, or not what its blocks say."""
    metric = result.metrics.get("accept_len")
    if metric is None:
        return []
    if metric.mean is None:
        return [f"accept_len is {metric.reason or 'not a number'}"]
    lengths = [block.accept_len for prompt in result.per_prompt for block in prompt.blocks]
    if len(lengths) == metric.n and lengths and abs(statistics.fmean(lengths) - metric.mean) > MEAN_TOLERANCE:
        mean = statistics.fmean(lengths)
        return [f"accept_len {metric.mean:.2f} contradicts its own {len(lengths)} blocks (mean {mean:.2f})"]
    return []


def lag_words(lag: dict[str, Any]) -> str:
    """Return a lag as `1300 steps (24.5 %, 1 h 1 min)`."""
    parts = []
    if lag.get("percent") is not None:
        parts.append(f"{lag['percent']:.1f} %")
    if lag.get("minutes") is not None:
        parts.append(age(lag["minutes"] * 60))
    return f"{lag['steps']} steps" + (f" ({', '.join(parts)})" if parts else "")
