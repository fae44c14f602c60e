"""What the screen of an evaluation says: conclusion, figures, comparison, training. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from hostkit.evals.compare import FEW_PROMPTS

Level = Literal["", "good", "warning", "bad"]

_MEANINGS = {
    "accept_len": "draft tokens accepted in a row (no anchor, no bonus)",
    "accept_len_top4_oracle": "bound: the token is among the 4 likeliest",
    "accept_len_top8_oracle": "bound: the token is among the 8 likeliest",
    "tau_loop": "accepted per round of the simulated loop (with bonus)",
}
_ORDER = ["accept_len", "tau_loop", "accept_len_ddtree", "accept_len_top4_oracle", "accept_len_top8_oracle"]
_OUTCOMES: dict[str, Level] = {"better": "good", "worse": "bad"}


@dataclass(frozen=True)
class Row:
    """A line: a label, its text, how it is meant."""

    label: str
    text: str
    level: Level = ""


@dataclass(frozen=True)
class Metric:
    """One metric over its blocks (or rounds)."""

    name: str
    mean: str
    interval: str
    count: int
    meaning: str


@dataclass(frozen=True)
class Domain:
    """One domain of prompts."""

    name: str
    accept_len: str
    prompts: str
    blocks: int


@dataclass(frozen=True)
class Screen:
    """One evaluation, top to bottom."""

    name: str
    step: int
    path: str
    archived: bool
    conclusion: Row
    sample: str
    missing_prompts: bool
    metrics: tuple[Metric, ...]
    domains: tuple[Domain, ...]
    comparison: tuple[Row, ...]
    caveats: tuple[str, ...]
    training: Row
    notes: tuple[str, ...]
    archive: str


def screen_of(document: dict[str, Any]) -> Screen:
    """Return the screen of a `hostkit.eval-latest/1` document."""
    result, checkpoint = document["result"], document["checkpoint"]
    settings, coverage = result["settings"], result["coverage"]
    comparison = document.get("comparison")
    return Screen(
        name=document["eval"],
        step=checkpoint["step"],
        path=str(checkpoint["path"]),
        archived=document["reused"],
        conclusion=_conclusion(comparison),
        sample=f"{coverage['blocks']} blocks of {settings['block_size']}, "
        f"{coverage['prompts_done']} of {coverage['prompts_asked']} prompts, "
        f"seed {settings['seed']}, {settings['dtype']}, {document['sample']} sample",
        missing_prompts=coverage["prompts_done"] < coverage["prompts_asked"],
        metrics=tuple(_metrics(result["metrics"])),
        domains=tuple(_domains(document["by_domain"])) if len(coverage["by_domain"]) > 1 else (),
        comparison=tuple(_comparison(comparison)),
        caveats=tuple(document["caveats"]),
        training=_training(document),
        notes=tuple(document["training"]["words"]),
        archive=str(document["archive"]),
    )


def _conclusion(comparison: dict[str, Any] | None) -> Row:
    if comparison is None:
        return Row("FIRST RESULT", "of this evaluation: nothing to compare with yet")
    label = comparison["label"]
    if comparison["reasons"]:
        return Row("NOT COMPARABLE", f"with {label}: {comparison['reasons'][0]}", "warning")
    if comparison["conflict"]:
        return Row("CONFLICT", f"with {label}: {comparison['conflict']}", "bad")
    item = comparison["differences"].get("accept_len")
    if item is None:
        return Row("NOT COMPARED", f"with {label}: accept_len is not in both", "warning")
    figures = f"accept_len {item['difference']:+.2f}, 95 % {bounds(item['interval'])}"
    return Row(item["words"].upper(), f"against {label}: {figures}", _OUTCOMES.get(item["words"], ""))


def _metrics(metrics: dict[str, Any]) -> list[Metric]:
    return [
        Metric(name, number(metric["mean"]), bounds(metric.get("interval")), metric["n"], _meaning(name))
        for name, metric in sorted(metrics.items(), key=lambda item: _order(item[0]))
        if not name.startswith(("accept_rate@", "cond_accept_rate@"))
    ]


def _domains(by_domain: dict[str, Any]) -> list[Domain]:
    return [
        Domain(name, number(part["accept_len"]), f"{part['done']} of {part['asked']}", part["blocks"])
        for name, part in sorted(by_domain.items())
    ]


def _comparison(comparison: dict[str, Any] | None) -> list[Row]:
    if comparison is None:
        return []
    rows = [Row("not comparable", reason, "warning") for reason in comparison["reasons"]]
    for name, item in comparison["differences"].items():
        few = " (too few to generalise)" if item["prompts"] < FEW_PROMPTS else ""
        text = f"{number(item['reference'])} → {number(item['other'])}, {item['difference']:+.2f} "
        text += f"{bounds(item['interval'])} over {item['prompts']} prompts{few}: {item['words']}"
        rows.append(Row(name, text, _OUTCOMES.get(item["words"], "")))
    return rows + [Row("caveat", caveat, "warning") for caveat in comparison["caveats"]]


def _training(document: dict[str, Any]) -> Row:
    training = document["training"]
    before, after, same = training["before"], training["after"], training["same_process"]
    well = same is not False and before["exit"] == 0 and after["exit"] == 0
    process = {True: "same process", False: "NOT the same process", None: "no process to compare"}[same]
    text = f"{before['verdict']} before, {after['verdict']} after; {process}"
    if before["step"]["live"] is not None:
        text += f", step {before['step']['live']} → {after['step']['live']}"
    return Row(f"training {document['run']}", text, "good" if well else "bad")


def number(value: float | None) -> str:
    """Return a mean with two decimals; a dash when it is not a number."""
    return "–" if value is None else f"{value:.2f}"


def bounds(interval: list[float] | tuple[float, float] | None) -> str:
    """Return an interval as `[2.10, 4.60]`; words when there is none."""
    return "(no interval)" if interval is None else f"[{interval[0]:.2f}, {interval[1]:.2f}]"


def _meaning(name: str) -> str:
    kind, _, budget = name.partition("@")
    return (
        f"in the best tree of {budget} drafted nodes"
        if kind == "accept_len_ddtree"
        else _MEANINGS.get(name, "")
    )


def _order(metric: str) -> tuple[int, int, str]:
    name, _, budget = metric.partition("@")
    rank = _ORDER.index(name) if name in _ORDER else len(_ORDER)
    return rank, int(budget) if budget.isdigit() else 0, name
