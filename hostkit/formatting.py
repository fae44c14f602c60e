"""Durations, sizes, dates as people read them at three in the morning (pure)."""

from __future__ import annotations

from datetime import UTC, datetime


def age(seconds: float) -> str:
    """Return a duration in its two largest units: `42 s`, `7 min 5 s`, `2 h 14 min`, `3 d 4 h`."""
    if seconds < 0:
        return f"-{age(-seconds)}"
    if seconds < 10:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    whole = round(seconds)
    for unit, size, lower, small in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size} {unit} {rest} {lower}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def size(amount: float) -> str:
    """Return a number of bytes in binary units: `512 B`, `3.8 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError


def moment(epoch: float) -> str:
    """Return an epoch time as UTC, ISO 8601 with seconds."""
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rate(steps_per_second: float) -> str:
    """Return a step rate in the unit in which it is a handy number."""
    if steps_per_second >= 1:
        return f"{steps_per_second:.2f} steps/s"
    if steps_per_second * 60 >= 1:
        return f"{steps_per_second * 60:.2f} steps/min"
    return f"{steps_per_second * 3600:.2f} steps/h"
