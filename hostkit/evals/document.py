"""The document of an evaluation, and its exit code: the result, what it rests on, and how the training is. Pure."""

from __future__ import annotations

import statistics
from typing import Any

from hostkit.evals.archive import Entry
from hostkit.evals.caveats import caveats, doubts
from hostkit.evals.compare import compare
from hostkit.evals.results import EvalResult
from hostkit.evals.training import training


def document(
    evaluation: str,
    run: str,
    entry: Entry,
    previous: Entry | None,
    *,
    candidate: dict[str, Any],
    sample: str,
    before: dict[str, Any],
    after: dict[str, Any],
    steps: list[dict[str, Any]],
    notes: list[str],
    reused: bool,
    ignore_run: bool,
) -> dict[str, Any]:
    """Return the `hostkit.eval-latest/1` document. Exit 1: done, and something about it is bad, said in `bad`."""
    result = entry.result
    found = training(before, after)
    bad = _bad(result, found, ignore_run=ignore_run)
    compared = compare(previous.result, result).document() if previous is not None else None
    if compared is not None and previous is not None:
        compared["label"] = previous.label
        compared["archive"] = str(previous.folder)
    return {
        "schema": "hostkit.eval-latest/1",
        "eval": evaluation,
        "run": run,
        "sample": sample,
        "checkpoint": candidate | {"sha256": result.checkpoint.sha256},
        "steps": steps,
        "result": result.document(),
        "by_domain": _by_domain(result),
        "comparison": compared,
        "caveats": caveats(result, lag=_lag(after, candidate)) + notes,
        "training": found,
        "archive": str(entry.folder),
        "reused": reused,
        "bad": bad,
        "exit": 1 if bad else 0,
    }


def _bad(result: EvalResult, found: dict[str, Any], *, ignore_run: bool) -> list[str]:
    bad = []
    if result.status != "complete" or result.coverage.partial:
        bad.append(f"partial: {result.coverage.prompts_done} of {result.coverage.prompts_asked} prompts")
    bad += doubts(result)
    if result.target_agreement is not None and not result.target_agreement.passed:
        bad.append("the target does not agree with its own references")
    if not ignore_run:
        bad += [
            f"the training was {found[when]['verdict']} {when}"
            for when in ("before", "after")
            if found[when]["exit"] != 0
        ]
        if found["same_process"] is False:
            bad.append("the training's process is another one than before")
    return bad


def _lag(status: dict[str, Any], candidate: dict[str, Any]) -> dict[str, Any] | None:
    """Return how far the checkpoint is behind the live run, by the newest look."""
    step = status["step"]
    if step.get("live") is None or step["live"] <= candidate["step"]:
        return None
    steps = step["live"] - candidate["step"]
    rate = step.get("rate")
    return {
        "steps": steps,
        "percent": 100 * steps / step["live"],
        "minutes": steps / rate / 60 if rate else None,
    }


def _by_domain(result: EvalResult) -> dict[str, dict[str, Any]]:
    """Return coverage and mean accepted length of each domain, over its blocks."""
    found: dict[str, dict[str, Any]] = {}
    for domain, part in result.coverage.by_domain.items():
        lengths = [
            block.accept_len
            for prompt in result.per_prompt
            if prompt.domain == domain
            for block in prompt.blocks
        ]
        mean = statistics.fmean(lengths) if lengths else None
        found[domain] = {"asked": part.asked, "done": part.done, "blocks": part.blocks, "accept_len": mean}
    return found
