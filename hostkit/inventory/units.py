"""Durations and sizes as people write them: `90s`, `15m`, `2h`, `7d`; `512MiB`, `72GiB`, `1GB`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from hostkit.inventory.faults import shown

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_BYTES = {
    "B": 1,
    **{f"{p}B": 1000 ** (i + 1) for i, p in enumerate("kMGT")},
    **{f"{p}iB": 1024 ** (i + 1) for i, p in enumerate("KMGT")},
}
_QUANTITY = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([A-Za-z]+)", re.ASCII)
_MEANT = {
    "sec": "s", "secs": "s", "second": "s", "seconds": "s", "min": "m", "mins": "m", "minute": "m", "minutes": "m",
    "hr": "h", "hrs": "h", "hour": "h", "hours": "h", "day": "d", "days": "d", "w": "d",
    "k": "KiB", "kb": "kB", "m": "MiB", "mb": "MB", "g": "GiB", "gb": "GB", "gib": "GiB", "mib": "MiB", "kib": "KiB",
    "t": "TiB", "tb": "TB", "tib": "TiB",
}  # fmt: skip


def _quantity(value: object, units: Mapping[str, float], what: str, example: str) -> float:
    usual = f"a number with a unit ({', '.join(units)}), such as {example}"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"this is not a {what}; write {usual}")
    if not isinstance(value, str):
        choices = " or ".join(f"{value}{unit}" for unit in units if unit in ("s", "m", "h", "MiB", "GiB"))
        raise ValueError(f"{value} has no unit; write {choices if value > 0 else usual}")
    match = _QUANTITY.fullmatch(value.strip())
    if match and match[2] in units:
        if float(match[1]) > 0:
            return float(match[1]) * units[match[2]]
        raise ValueError(f"{shown(value)} is nothing; write a {what} above zero, such as {example}")
    if match and (meant := _meant(match[2].lower(), units)):
        raise ValueError(f"{shown(value)} has an unknown unit; write {match[1]}{meant}, or {usual}")
    raise ValueError(f"{shown(value)} is not a {what}; write {usual}")


def _meant(word: str, units: Mapping[str, float]) -> str | None:
    same = next((unit for unit in units if unit.lower() == word), _MEANT.get(word))
    return same if same in units else next(iter(get_close_matches(word, units, 1)), None)


def seconds(text: object) -> float:
    """Return the seconds in a duration such as `15m`. Raises ValueError for anything without a unit."""
    return _quantity(text, _SECONDS, "duration", "15m")


def size_bytes(text: object) -> int:
    """Return the bytes in a size such as `72GiB`. Raises ValueError for anything without a unit."""
    return int(_quantity(text, _BYTES, "size", "72GiB"))


def written_seconds(value: float) -> str:
    """Return a duration as it may stand in a file, in the largest unit that needs no fraction."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if value >= length and value % length == 0:
            return f"{int(value // length)}{unit}"
    return f"{value * 1000:.6f}".rstrip("0").rstrip(".") + "ms"


def written_size(value: int) -> str:
    """Return a size as it may stand in a file, in the largest binary unit that needs no fraction."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if value >= _BYTES[unit] and value % _BYTES[unit] == 0:
            return f"{value // _BYTES[unit]}{unit}"
    return f"{value}B"


Duration = Annotated[
    float,
    BeforeValidator(seconds),
    PlainSerializer(written_seconds, when_used="json"),
    WithJsonSchema(
        {"type": "string", "pattern": r"^\d+(\.\d+)?\s*(ms|s|m|h|d)$", "examples": ["90s", "15m", "6h"]}
    ),
]
Size = Annotated[
    int,
    BeforeValidator(size_bytes),
    PlainSerializer(written_size, when_used="json"),
    WithJsonSchema(
        {"type": "string", "pattern": r"^\d+(\.\d+)?\s*([kMGT]B|[KMGT]iB|B)$", "examples": ["72GiB"]}
    ),
]
