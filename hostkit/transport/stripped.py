"""A remote module as it travels, and what it NEEDS; kept in the user's cache, since working it out takes time.

A command sends some ten modules. Parsing them anew took a tenth of a second for each program, more than a round trip.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from hostkit.directories import cache_directory
from hostkit.errors import CannotCreateError
from hostkit.transport.bare import bare

_FORM = 1  # raised whenever `bare` or what is kept changes


@dataclass(frozen=True)
class Stripped:
    """A module's text without comments and docstrings, and the names of the siblings that it NEEDS."""

    text: str
    needs: tuple[str, ...]


def stripped(name: str, source: str) -> Stripped:
    """Return how hostkit/remote/<name>.py travels; from the cache where that holds this very source."""
    key = hashlib.sha256(f"{_FORM} {sys.version_info[:2]} {source}".encode()).hexdigest()
    try:
        place = cache_directory() / "remote" / f"{name}.json"
    except CannotCreateError:
        place = None
    found = _kept(place, key) if place else None
    if found is None:
        found = Stripped(bare(source), _needs(source))
        if place:
            _keep(place, key, found)
    return found


def _kept(place: Path, key: str) -> Stripped | None:
    try:
        with place.open("rb") as file:
            look = os.fstat(file.fileno())
            if look.st_uid != os.geteuid() or look.st_mode & 0o022:
                return None  # somebody else may have written it, and it runs on hosts
            told = json.loads(file.read())
        found = Stripped(str(told["text"]), tuple(map(str, told["needs"])))
        if told["key"] == key and told["sum"] == _sum(found):
            return found
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None  # a cache is no truth: what is missing, cut or odd in it is worked out again
    return None


def _keep(place: Path, key: str, found: Stripped) -> None:
    try:
        place.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=place.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump({"key": key, "sum": _sum(found)} | asdict(found), file)
            Path(name).replace(place)
        except OSError:
            Path(name).unlink(missing_ok=True)
    except OSError:
        return  # a full disk costs the next command its time, and nothing else


def _sum(found: Stripped) -> str:
    """Return what tells a text that was damaged on the disk: it still is a Python program then, and another one."""
    return hashlib.sha256(json.dumps(asdict(found)).encode()).hexdigest()


def _needs(source: str) -> tuple[str, ...]:
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and [t.id for t in node.targets if isinstance(t, ast.Name)] == [
            "NEEDS"
        ]:
            return tuple(str(name) for name in ast.literal_eval(node.value))
    return ()
