"""The best checkpoint that an archive of results knows: the highest mean among like results, with all it rests on.

Only whole results count, and only such as were made alike: the settings, the target and the prompts of the newest one.
The others are counted and named, never mixed in.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

from pydantic import BaseModel, ConfigDict

from hostkit.evals.archive import Archive, Entry
from hostkit.evals.compare import compare

METRIC = "accept_len"


class Best(BaseModel):
    """The best result of one evaluation. `compared`: how many like results it is the best of."""

    model_config = ConfigDict(frozen=True)

    eval: str
    step: int | None
    metric: str
    mean: float
    interval: tuple[float, float] | None
    blocks: int
    prompts_done: int
    prompts_asked: int
    block_size: int
    trained_block_size: int | None
    blocks_per_prompt: int
    created_at: str
    compared: int
    beside: str | None = None  # what the runner-up is, where the two cannot be told apart
    left_out: tuple[str, ...] = ()
    source: dict[str, Any] | None = None  # where the checkpoint was and what its file was like
    folder: str

    @property
    def words(self) -> str:
        """Say the figure with what it rests on."""
        bounds = (
            f"[{self.interval[0]:.2f}, {self.interval[1]:.2f}]"
            if self.interval
            else "no interval: too few prompts"
        )
        trained = (
            f" (trained at {self.trained_block_size})"
            if self.trained_block_size not in (None, self.block_size)
            else ""
        )
        of = (
            f"best of {self.compared} comparable results"
            if self.compared > 1
            else "the only result of its kind"
        )
        return (
            f"step {self.step}, {self.metric} {self.mean:.2f} {bounds}, {self.prompts_done} of {self.prompts_asked} "
            f"prompts, {self.blocks} blocks of {self.block_size}{trained}; {of}, {self.created_at}"
        )


def best_of(archive: str, evaluation: str) -> tuple[Best | None, list[str]]:
    """Return the best result of an evaluation, and a line for each thing that was left out."""
    try:
        entries, notes = Archive(archive, evaluation).entries()
    except OSError as error:
        return None, [f"the archive cannot be read: {error.strerror}: {error.filename}"]
    usable: list[tuple[Entry, float]] = []
    for entry in entries:
        mean, why = _mean(entry)
        if mean is None:
            notes.append(f"{entry.label}: {why}")
        else:
            usable.append((entry, mean))
    if not usable:
        return None, notes
    newest = max(usable, key=lambda one: one[0].result.created_at)[0]
    alike = [one for one in usable if _kind(one[0]) == _kind(newest)]
    if len(alike) < len(usable):
        notes.append(
            f"{len(usable) - len(alike)} with other settings, target or prompts than the newest result"
        )
    ranked = sorted(alike, key=lambda one: (one[1], one[0].order), reverse=True)
    best, mean = ranked[0]
    result = best.result
    figure = result.metrics[METRIC]
    found = Best(
        eval=evaluation,
        step=result.checkpoint.step,
        metric=METRIC,
        mean=mean,
        interval=figure.interval,
        blocks=figure.n,
        prompts_done=result.coverage.prompts_done,
        prompts_asked=result.coverage.prompts_asked,
        block_size=result.settings.block_size,
        trained_block_size=result.settings.trained_block_size,
        blocks_per_prompt=result.settings.blocks_per_prompt,
        created_at=result.created_at,
        compared=len(alike),
        beside=_beside(best, ranked[1][0]) if len(ranked) > 1 else None,
        left_out=tuple(notes),
        source=_source(best),
        folder=str(best.folder),
    )
    return found, notes


def _mean(entry: Entry) -> tuple[float | None, str]:
    """Return the figure of a result that counts; else None, and why it does not."""
    result, metric = entry.result, entry.result.metrics.get(METRIC)
    if result.status != "complete" or result.coverage.partial:
        coverage = result.coverage
        return None, f"{result.status}, {coverage.prompts_done} of {coverage.prompts_asked} prompts"
    if metric is None:
        return None, f"it has no {METRIC}"
    if metric.mean is None or not math.isfinite(metric.mean):
        return None, metric.reason or f"its {METRIC} is not a number"
    if result.settings.metric_definition == "unverified":
        return None, "the definition of its metrics is unverified"
    return metric.mean, ""


def _kind(entry: Entry) -> str:
    """Return what results must share to be ranked: settings, target, prompts with their references."""
    result = entry.result
    prompts = sorted(f"{one.id} {one.reference_sha256}" for one in result.per_prompt)
    told = [
        result.settings.model_dump(exclude={"threads", "trained_block_size", "ddtree_budgets"}),
        result.target.model_dump(include={"config_sha256", "vocab_sha256", "template_sha256"}),
        hashlib.sha256("\n".join(prompts).encode()).hexdigest(),
    ]
    return json.dumps(told, sort_keys=True, default=str)


def _beside(best: Entry, second: Entry) -> str | None:
    """Say so where the best and the next differ by no more than chance: then nothing is called better."""
    difference = compare(second.result, best.result).differences.get(METRIC)
    if difference is None or difference.words == "better":
        return None
    bounds = difference.interval
    told = f"{difference.difference:+.2f} [{bounds[0]:.2f}, {bounds[1]:.2f}]" if bounds else "too few prompts"
    return f"no significant difference from {second.label} ({told})"


def _source(entry: Entry) -> dict[str, Any] | None:
    try:
        found = json.loads((entry.folder / "provenance.json").read_bytes())
    except (OSError, ValueError):
        return None
    source = found.get("source") if isinstance(found, dict) else None
    return source if isinstance(source, dict) else None
