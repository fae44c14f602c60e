"""JSON that every reader takes: Python reads and writes NaN and infinity, which are no JSON and which others refuse."""

from __future__ import annotations

import json
import math
from typing import Any


def finite(value: Any) -> Any:
    """Return JSON data with null in place of each number that is not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def dumps(document: Any, *, indent: int | None = 2, sort_keys: bool = False) -> str:
    """Return a document as JSON text, for people and programs alike."""
    return json.dumps(
        finite(document), ensure_ascii=False, allow_nan=False, indent=indent, sort_keys=sort_keys
    )
