"""How the training was before an evaluation and after it: the same process, still stepping? Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from hostkit.identity import Identity

MIN_SECONDS_FOR_A_STEP = 30.0  # between two observations, before a step that did not come is worth a word


def training(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Compare two `hostkit.train-status/1` documents.

    `same_process` is None, not known, where either observation found no process for certain.
    """
    one, two = _identity(before), _identity(after)
    same = None if one is None or two is None else one == two
    words = []
    for when, status in (("before", before), ("after", after)):
        if status["exit"]:
            reason = status["evidence"][0] if status["evidence"] else "no evidence given"
            words.append(f"{when}: {status['verdict']}, {reason}")
    if same is False:
        words.append("another process than before: the run was restarted")
    elif one is not None and two is None:
        words.append("its process was seen before, not after")
    steps = [status["step"]["live"] for status in (before, after)]
    long_enough = _seconds_between(before, after) >= MIN_SECONDS_FOR_A_STEP
    if same and long_enough and None not in steps and steps[0] == steps[1] and before["verdict"] == "RUNNING":
        words.append(f"its log shows no new step since step {steps[0]}")
    return {
        "before": _brief(before),
        "after": _brief(after),
        "same_process": same,
        "words": words,
    }


def _seconds_between(before: dict[str, Any], after: dict[str, Any]) -> float:
    """Return the time between two observations, by the run's own clock."""
    first, second = (datetime.fromisoformat(status["at"]) for status in (before, after))
    return (second - first).total_seconds()


def _identity(status: dict[str, Any]) -> dict[str, Any] | None:
    """The run's own process; None when there is none, or the observation is not certain."""
    if status["verdict"] == "UNKNOWN" or not status["processes"]:
        return None
    identity = status["processes"][0]["identity"]
    return {key: identity[key] for key in Identity.model_fields}


def _brief(status: dict[str, Any]) -> dict[str, Any]:
    return {
        "verdict": status["verdict"],
        "exit": status["exit"],
        "at": status["at"],
        "identity": _identity(status),
        "step": {key: status["step"].get(key) for key in ("live", "saved", "rate", "lag")},
    }
