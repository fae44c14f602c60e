"""The verdicts on a run: each with its exit code and the phrase that a person reads beside it (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Verdict(StrEnum):
    """`exit` is the exit code of the verdict alone; documents hold the name."""

    exit: int
    phrase: str

    def __new__(cls, name: str, exit: int, phrase: str) -> Verdict:
        member = str.__new__(cls, name)
        member._value_, member.exit, member.phrase = name, exit, phrase
        return member

    RUNNING = "RUNNING", 0, "alive and progressing"
    STARTING = "STARTING", 0, "alive, no step yet, within its startup time"
    FINISHED = "FINISHED", 0, "ended well"
    STALLED = "STALLED", 2, "alive, but not progressing"
    DEGRADED = "DEGRADED", 2, "alive, but workers are missing"
    DIVERGED = "DIVERGED", 2, "running, but the loss is NaN or infinite"
    DEAD = "DEAD", 2, "not running"
    UNKNOWN = "UNKNOWN", 3, "state unknown"


def worst(exits: Iterable[int]) -> int:
    """Return the exit code that speaks for all: 2, else 3, else 1, else 0."""
    given = set(exits)
    return next((code for code in (2, 3, 1) if code in given), 0)
