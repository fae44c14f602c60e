"""The evaluation harness on both sides: every file hashed here and there before either is trusted."""

from __future__ import annotations

import difflib
import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hostkit.bundled import bundled
from hostkit.transport.base import Transport
from hostkit.transport.program import run_program

_TEXT_LIMIT = 1 << 18


@dataclass(frozen=True)
class Harness:
    """The files of a harness on this side, by name."""

    folder: Path
    names: tuple[str, ...]

    @cached_property
    def files(self) -> dict[str, bytes]:
        return {name: (self.folder / name).read_bytes() for name in self.names}

    @cached_property
    def hashes(self) -> dict[str, str]:
        return {name: hashlib.sha256(data).hexdigest() for name, data in self.files.items()}


@dataclass(frozen=True)
class Drift:
    """What differs between this side and the host: nothing, files to install, or files that were changed."""

    missing: tuple[str, ...]
    changed: tuple[str, ...]
    unreadable: tuple[str, ...]
    others: tuple[str, ...]
    diff: str = ""

    @property
    def none(self) -> bool:
        return not (self.missing or self.changed or self.unreadable)


def dflash() -> Harness:
    """Return the bundled DFlash harness: its modules and prompts."""
    folder = bundled("remote_payloads") / "dflash"
    names = sorted(p.name for p in folder.iterdir() if p.suffix in (".py", ".jsonl") and p.is_file())
    return Harness(folder, tuple(names))


def drift(transport: Transport, python: str, harness: Harness, folder: str) -> Drift:
    """Hash the host's copy in `folder` and hold it against this side. One round trip, reads only."""
    request = {"folder": folder, "names": list(harness.names), "text_limit": _TEXT_LIMIT}
    reply = run_program(transport, python, "hashes", request)
    missing, changed, unreadable, diffs = [], [], [], []
    for name in harness.names:
        there = reply["files"].get(name)
        if there is None:
            missing.append(name)
        elif there["sha256"] is None:
            unreadable.append(f"{name} ({there['reason']})")
        elif there["sha256"] != harness.hashes[name]:
            changed.append(name)
            diffs.append(_diff(name, there.get("text"), harness.files[name]))
    others = [name for name in reply["others"] if name.endswith(".py")]
    return Drift(tuple(missing), tuple(changed), tuple(unreadable), tuple(others), "".join(diffs))


def _diff(name: str, there: str | None, here: bytes) -> str:
    if there is None:
        return f"{name}: too large to show\n"
    lines = difflib.unified_diff(
        there.splitlines(keepends=True),
        here.decode("utf-8", "replace").splitlines(keepends=True),
        f"host/{name}",
        f"hostkit/{name}",
    )
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)
