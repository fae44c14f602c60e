"""What must stand beside a figure, so that nobody throws away good work or keeps bad. Pure."""

from __future__ import annotations

from typing import Any

from hostkit.evals.compare import FEW_PROMPTS
from hostkit.evals.results import EvalResult
from hostkit.formatting import age


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
        found.append(f"all prompts are of one domain ({domains[0]}): it says nothing about others")
    trained = settings.trained_block_size
    if trained is not None and trained != settings.block_size:
        found.append(
            f"evaluated at block {settings.block_size}, trained at block {trained}: both change the figure"
        )
    if lag and lag.get("steps"):
        found.append(f"step {result.checkpoint.step} is {lag_words(lag)} behind the live weights")
    agreement = result.target_agreement
    if agreement is not None and not agreement.passed:
        rate = "not measured" if agreement.rate is None else f"{agreement.rate:.1%}"
        found.append(
            f"the target agrees with its own references in {rate} only: wrong template, thinking flag, tokenizer or "
            "revision are the likely causes, and the figures mean little until it is mended"
        )
    if settings.metric_definition == "unverified":
        found.append("the definition of these metrics is unverified: compare them with nothing")
    return found


def lag_words(lag: dict[str, Any]) -> str:
    """Return a lag as `1300 steps (24.5 %, 1 h 1 min)`."""
    parts = []
    if lag.get("percent") is not None:
        parts.append(f"{lag['percent']:.1f} %")
    if lag.get("minutes") is not None:
        parts.append(age(lag["minutes"] * 60))
    return f"{lag['steps']} steps" + (f" ({', '.join(parts)})" if parts else "")
