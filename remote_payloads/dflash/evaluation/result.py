"""The result document `hostkit.eval-result/1`: counts beside means, coverage, settings, provenance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from dflash.evaluation.evaluator import PromptResult
from dflash.evaluation.intervals import t_interval
from dflash.evaluation.metrics import per_position

SCHEMA = "hostkit.eval-result/1"
LENGTHS = ("accept_len", "accept_len_top4_oracle", "accept_len_top8_oracle")


def block_metric(results: Sequence[PromptResult], value: Callable[[Any], int]) -> dict[str, Any]:
    """Pooled mean over blocks; the mean of prompt means and its t interval beside it."""
    groups = [[value(block) for block in r.blocks] for r in results if r.blocks]
    return _metric([(sum(g), len(g)) for g in groups])


def loop_metric(results: Sequence[PromptResult]) -> dict[str, Any]:
    """tau of the simulated loop: tokens per round, bonus included, pooled as servers count."""
    pairs = [(r.tau_loop["tokens"], r.tau_loop["rounds"]) for r in results if r.tau_loop]
    return _metric([(tokens, rounds) for tokens, rounds in pairs if rounds])


def metrics(results: Sequence[PromptResult], budgets: Sequence[int]) -> dict[str, Any]:
    """Every named metric of these prompts."""
    found = {name: block_metric(results, lambda b, n=name: getattr(b, n)) for name in LENGTHS}  # type: ignore[misc]
    for budget in sorted(budgets):
        found[f"accept_len_ddtree@{budget}"] = block_metric(results, lambda b, k=str(budget): b.ddtree[k])  # type: ignore[misc]
    found["tau_loop"] = loop_metric(results)
    return found


def coverage(
    asked: Sequence[tuple[str, str]], results: Sequence[PromptResult], missing: Sequence[dict[str, str]]
) -> dict[str, Any]:
    """How much of what was asked was measured, and why not the rest; `asked` is (prompt, domain)."""
    domains: dict[str, dict[str, int]] = {}
    for _, domain in asked:
        domains.setdefault(domain, {"asked": 0, "done": 0, "blocks": 0})["asked"] += 1
    for result in results:
        domains[result.domain]["done"] += 1
        domains[result.domain]["blocks"] += len(result.blocks)
    return {
        "prompts_asked": len(asked),
        "prompts_done": len(results),
        "blocks": sum(len(r.blocks) for r in results),
        "missing": list(missing),
        "by_domain": domains,
    }


def figures(results: Sequence[PromptResult], budgets: Sequence[int], drafted: int) -> dict[str, Any]:
    """metrics, by_domain, by_context, per_position and per_prompt of a result."""
    blocks = [block for r in results for block in r.blocks]
    domains = sorted({r.domain for r in results})
    return {
        "metrics": metrics(results, budgets),
        "by_domain": {d: metrics([r for r in results if r.domain == d], budgets) for d in domains},
        "by_context": context_buckets(results),
        "per_position": per_position([b.accept_len for b in blocks], [b.hits for b in blocks], drafted),
        "per_prompt": [r.document() for r in results],
    }


def context_buckets(results: Sequence[PromptResult]) -> list[dict[str, Any]]:
    """accept_len by how long the context was, in powers of two: drafters fade beyond their training length."""
    buckets: dict[int, list[int]] = {}
    for result in results:
        for block in result.blocks:
            buckets.setdefault(max(64, 1 << block.anchor.bit_length()), []).append(block.accept_len)
    return [
        {"context_below": below, "blocks": len(v), "sum": sum(v), "mean": fmean(v)}
        for below, v in sorted(buckets.items())
    ]


def status_of(cover: dict[str, Any]) -> str:
    """complete, partial, or failed where nothing was measured."""
    if not cover["blocks"]:
        return "failed"
    return "complete" if cover["prompts_done"] == cover["prompts_asked"] else "partial"


def _metric(groups: Sequence[tuple[int, int]]) -> dict[str, Any]:
    total, n = sum(s for s, _ in groups), sum(c for _, c in groups)
    means = [s / c for s, c in groups]
    interval = t_interval(means)
    return {
        "mean": total / n if n else None,
        "sum": total,
        "n": n,
        "prompts": len(groups),
        "prompt_mean": fmean(means) if means else None,
        "interval": list(interval) if interval else None,
    }
