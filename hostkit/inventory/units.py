"""Durations and sizes as people write them: `90s`, `15m`, `2h`, `7d`; `512MiB`, `72GiB`, `1GB`."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_BYTES = {
    "B": 1,
    **{f"{p}B": 1000 ** (i + 1) for i, p in enumerate("kMGT")},
    **{f"{p}iB": 1024 ** (i + 1) for i, p in enumerate("KMGT")},
}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")


def _quantity(text: object, units: dict[str, float] | dict[str, int], what: str, example: str) -> float:
    if isinstance(text, str) and (match := _QUANTITY.fullmatch(text.strip())) and match[2] in units:
        return float(match[1]) * units[match[2]]
    raise ValueError(
        f"{text!r} is not a {what}; write a number with a unit ({', '.join(units)}), such as {example}"
    )


def seconds(text: object) -> float:
    """Return the seconds in a duration such as `15m`. Raises ValueError for anything without a unit."""
    return _quantity(text, _SECONDS, "duration", "15m")


def size_bytes(text: object) -> int:
    """Return the bytes in a size such as `72GiB`. Raises ValueError for anything without a unit."""
    return int(_quantity(text, _BYTES, "size", "72GiB"))


Duration = Annotated[
    float,
    BeforeValidator(seconds),
    WithJsonSchema(
        {"type": "string", "pattern": r"^\d+(\.\d+)?\s*(ms|s|m|h|d)$", "examples": ["90s", "15m", "6h"]}
    ),
]
Size = Annotated[
    int,
    BeforeValidator(size_bytes),
    WithJsonSchema(
        {"type": "string", "pattern": r"^\d+(\.\d+)?\s*([kMGT]B|[KMGT]iB|B)$", "examples": ["72GiB"]}
    ),
]
