"""A fault of an inventory file: where it stands, what is wrong, what to write instead."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from hostkit.errors import ConfigError

Path = tuple[str | int, ...]

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_.-]{1,63}")
_MAX_SHOWN = 200  # faults shown; a file with more of them has one cause


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `line` and `column` count from 1; column 0 says that the path tells the place."""

    line: int
    path: Path
    what: str
    instead: str = ""
    column: int = 0

    def text(self, file: str) -> str:
        """Return `file:line: path: what; what to do`."""
        place = f"{file}:{self.line}: "
        if self.path:
            place += f"{dotted(self.path)}: "
        return place + self.what + (f"; {self.instead}" if self.instead else "")


def refuse(file: str, faults: Iterable[Fault]) -> ConfigError:
    """Return the error that carries these faults in the order of their lines, the same fault once."""
    same: dict[object, list[Fault]] = {}
    for fault in sorted(faults, key=lambda fault: fault.line):
        same.setdefault((fault.line, fault.column or fault.path, fault.what), []).append(fault)
    lines = []
    for first, *others in same.values():  # what stands behind an anchor is wrong wherever it is merged
        more = f" ({len(others)} more use it)" if others else ""
        lines.append(first.text(file) + more)
    if len(lines) > _MAX_SHOWN:
        lines = [*lines[:_MAX_SHOWN], f"... and {len(lines) - _MAX_SHOWN} more"]
    count = "one fault" if len(same) == 1 else f"{len(same)} faults"
    return ConfigError(f"{count} in the inventory, no host was contacted", where=file, faults=tuple(lines))


def dotted(path: Path) -> str:
    """Return a path as people write it: `runs.drafter.gpus[2]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if _PLAIN_KEY.fullmatch(part) else shown(part))
    return text


def shown(value: str, limit: int = 60) -> str:
    """Return text of the file in quotes, cut, and with nothing in it that a terminal would obey."""
    return (
        json.dumps(value if len(value) <= limit else value[: limit - 1] + "…")
        .replace("\\u2026", "…")
        .replace("\\\\", "\\")
    )
