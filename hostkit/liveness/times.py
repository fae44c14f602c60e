"""Times as logs write them: epoch seconds, ISO 8601, a clock, a progress bar's elapsed time (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\s?(Z|[+-]\d\d:?\d\d)?")
_CLOCK = re.compile(r"^\W{0,3}(?:[IWE]\s?)?(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?\b")
_BAR = re.compile(r"\[(?:(\d+):)?(\d{1,2}):(\d\d)<")
_EPOCH = re.compile(r"^\W{0,3}(1\d{9}(?:\.\d+)?)\b")
_KEYS = ("time", "timestamp", "ts", "asctime", "created_at", "@timestamp", "_timestamp", "date", "wall_time")
_LATEST = 1e14  # milliseconds in the year 5138; what is beyond it is no time, and may be beyond any float
_ELAPSED = ("elapsed", "elapsed_s", "elapsed_seconds", "_runtime", "runtime")


@dataclass(frozen=True)
class Moment:
    """Seconds on one of several scales; only moments of one kind compare, and only `absolute` ones are dates."""

    kind: str  # epoch, naive (no zone given), clock (time of day), elapsed
    seconds: float

    @property
    def absolute(self) -> bool:
        return self.kind == "epoch"


def moment_in(line: str) -> Moment | None:
    """Return the time that a line of text carries."""
    if match := _ISO.search(line[:120]):
        return _iso(match)
    if match := _EPOCH.match(line):
        return Moment("epoch", float(match[1]))
    if match := _CLOCK.match(line):
        hours, minutes, seconds = (int(match[n]) for n in (1, 2, 3))
        return Moment("clock", hours * 3600 + minutes * 60 + seconds + float(f"0.{match[4] or 0}"))
    if match := _BAR.search(line):
        return Moment("elapsed", int(match[1] or 0) * 3600 + int(match[2]) * 60 + int(match[3]))
    return None


def clock_of(record: Mapping[str, Any], key: str | None = None) -> Moment | None:
    """Return the time that a JSON record carries under `key`, or under one of the usual keys."""
    for name in (key,) if key else _KEYS:
        value = record.get(name)
        if isinstance(value, str) and (moment := moment_in(value)) is not None:
            return moment
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 1e9 <= value < _LATEST:
            return Moment("epoch", value / 1000 if value >= 1e12 else float(value))
    for name in _ELAPSED:
        value = record.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _LATEST:
            return Moment("elapsed", float(value))
    return None


def _iso(match: re.Match[str]) -> Moment | None:
    try:
        naive = datetime(*(int(match[n]) for n in range(1, 7)), tzinfo=UTC).timestamp()  # type: ignore[arg-type, misc]
    except ValueError:
        return None
    seconds = naive + float(f"0.{match[7] or 0}")
    zone = match[8]
    if zone is None:
        return Moment("naive", seconds)
    if zone != "Z":
        sign = -1 if zone[0] == "-" else 1
        seconds -= sign * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60)
    return Moment("epoch", seconds)
