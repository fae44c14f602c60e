"""What pydantic found wrong, as faults with a line, the words of the file and what to write instead."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pydantic_core import ErrorDetails

from hostkit.inventory.document import Document, Missing
from hostkit.inventory.faults import Fault, Path, shown
from hostkit.inventory.known import example_at, kind_at, model_at, suggestion

_TAGS = {("harness", "own"), ("harness", "bundled")}  # pydantic's names for the sides of a union, not keys


def faults_of(errors: list[ErrorDetails], document: Document) -> Iterator[Fault]:
    """Yield a fault for each error, except where the document has told of a fault already."""
    for error in errors:
        path = _path(error["loc"])
        if _told(path, error["type"], document):
            continue
        if path and path[-1] == "[key]":
            yield _bad_name(path[:-1], document)
        else:
            what, instead = _words(error, path, document)
            place = document.places.get(path)
            yield Fault(
                _line(path, error["type"], document), path, what, instead, place.column if place else 0
            )


def _path(loc: tuple[int | str, ...]) -> Path:
    return tuple(part for at, part in enumerate(loc) if at == 0 or (loc[at - 1], part) not in _TAGS)


def _told(path: Path, kind: str, document: Document) -> bool:
    around = (
        len(path) - 1 if kind == "extra_forbidden" else len(path)
    )  # a faulty value says nothing of its key
    if any(path[:length] in document.faulty for length in range(1, around + 1)):
        return True
    return kind == "extra_forbidden" and (*path, "[key]") in document.faulty


def _line(path: Path, kind: str, document: Document) -> int:
    place = document.places.get(path)
    if place is None:  # a missing key: the line of the mapping that misses it
        return document.line(path[:-1])
    return place.key_line if kind == "extra_forbidden" or place.raw is None else place.line


def _bad_name(path: Path, document: Document) -> Fault:
    name = str(path[-1])
    better = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in name).strip("-._")
    if better and not better[0].isalpha():
        better = f"{str(path[0]).removesuffix('s')}{better}"
    what = f"{shown(name)} is not a name"
    if ":" in name:
        return Fault(document.line(path), path, what, "is a blank missing after its colon?")
    instead = "begin with a letter, go on with letters, digits, . _ - (63 at most)"
    if better and len(better) < 40:
        instead = f"write {better}, or the like: {instead}"
    return Fault(document.line(path), path, what, instead)


def _words(error: ErrorDetails, path: Path, document: Document) -> tuple[str, str]:
    kind, value = error["type"], error["input"]
    context = error.get("ctx", {})
    if kind == "extra_forbidden":
        key = str(path[-1])
        return f"unknown key {shown(key)}", suggestion(key, path[:-1])
    if kind == "missing":
        return f"{path[-1]} is missing", _example(path, f"write {path[-1]}: ")
    if kind == "value_error":
        what, _, instead = str(context["error"]).partition("; ")
        return what, instead
    if kind == "string_too_short":
        return "an empty text", _example(
            path, "write a value, such as "
        ) or "write a value, or remove the key"
    if kind == "literal_error":
        return f"{_said(value)} is not allowed here", f"write {_choices(context['expected'], path)}"
    if kind in ("greater_than_equal", "less_than_equal"):
        bound = context.get("ge", context.get("le"))
        side = "least" if kind.startswith("greater") else "most"
        return f"{_said(value)} is out of range", f"write a whole number of at {side} {bound}"
    if kind == "too_short":
        return "it is empty", _example(path, "write at least one entry, such as ")
    return _wrong_kind(value, path, document)


def _choices(expected: str, path: Path) -> str:
    words = expected.replace("'", "")
    model = model_at(path)  # the other side of a union, where there is one
    return f"{words}, or a mapping with {next(iter(model.model_fields))}" if model else words


def _wrong_kind(value: Any, path: Path, document: Document) -> tuple[str, str]:
    wanted = kind_at(path)
    place = document.places.get(path)
    raw = place.raw if place else None
    what = f"{_said(value, raw)} where {wanted} is expected"
    scalar = isinstance(value, str | int | float)
    if wanted == "a text" and scalar and raw is not None:
        return what, f"write {shown(raw)} in quotes"
    if wanted in ("a whole number", "true or false") and isinstance(value, str):
        if wanted == "true or false":
            return what, "write true or false, without quotes"
        bare = value.strip().replace(",", "").replace("_", "")
        if bare.isascii() and bare.isdigit():
            return what, f"write {int(bare[:18])} without quotes"
    if wanted == "a list" and scalar and raw is not None:
        return what, f"write [{json.dumps(value) if isinstance(value, str) else raw}]"
    return what, _example(path, "write ") or f"write {wanted}"


def _said(value: Any, raw: str | None = None) -> str:
    """Return in words what stands there."""
    if isinstance(value, Missing):
        return "a faulty value"
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, int | float):
        return f"the number {raw or value}"
    if isinstance(value, str):
        return f"the text {shown(value)}"
    return "a list" if isinstance(value, list) else "a mapping"


def _example(path: Path, start: str) -> str:
    example = example_at(path)
    if example is None:
        return ""
    if isinstance(example, dict | list):
        return start + re.sub(r'"([A-Za-z/][A-Za-z0-9_./-]*)"', r"\1", json.dumps(example))
    return start + (str(example).lower() if isinstance(example, bool) else str(example))
