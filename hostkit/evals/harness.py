"""The evaluation harness on both sides: every file hashed here and there before either is trusted."""

from __future__ import annotations

import difflib
import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hostkit.bundled import bundled
from hostkit.transport.base import Transport
from hostkit.transport.programs.run import run_program

_TEXT_LIMIT = 1 << 18
INSTALLED = (
    "hostkit-harness.json"  # beside the files: what was installed, so that an edit can be told from age
)


@dataclass(frozen=True)
class Harness:
    """The files of a harness on this side, by name."""

    folder: Path
    names: tuple[str, ...]

    @cached_property
    def files(self) -> dict[str, bytes]:
        return {name: (self.folder / name).read_bytes() for name in self.names}

    @property
    def manifest(self) -> bytes:
        """The text of INSTALLED for these files."""
        return json.dumps(
            {"schema": "hostkit.harness/1", "files": self.hashes}, indent=1, sort_keys=True
        ).encode()

    @cached_property
    def hashes(self) -> dict[str, str]:
        return {name: hashlib.sha256(data).hexdigest() for name, data in self.files.items()}


@dataclass(frozen=True)
class Drift:
    """What differs on the host: files that are missing, of an older hostkit and untouched since, or changed there."""

    missing: tuple[str, ...]
    outdated: tuple[str, ...]
    changed: tuple[str, ...]
    unreadable: tuple[str, ...]
    others: tuple[str, ...]
    diff: str = ""

    @property
    def none(self) -> bool:
        return not (self.missing or self.outdated or self.changed or self.unreadable)


def dflash() -> Harness:
    """Return the bundled DFlash harness: its modules and prompts."""
    folder = bundled("remote_payloads")
    modules = (path for path in (folder / "dflash").rglob("*") if path.suffix in (".py", ".jsonl"))
    names = sorted(["eval_drafter.py", "preflight.py", *(str(path.relative_to(folder)) for path in modules)])
    return Harness(folder, tuple(names))


def drift(transport: Transport, python: str, harness: Harness, folder: str) -> Drift:
    """Hash the host's copy in `folder` and hold it against this side. One round trip, reads only."""
    request = {"folder": folder, "names": [*harness.names, INSTALLED], "text_limit": _TEXT_LIMIT}
    reply = run_program(transport, python, "hashes", request, retry=True)
    installed = _installed(reply["files"].get(INSTALLED))
    outdated: list[str] = []
    changed: list[str] = []
    missing, unreadable, diffs = [], [], []
    for name in harness.names:
        there = reply["files"].get(name)
        if there is None:
            missing.append(name)
        elif there["sha256"] is None:
            unreadable.append(f"{name} ({there['reason']})")
        elif there["sha256"] != harness.hashes[name]:
            (outdated if installed.get(name) == there["sha256"] else changed).append(name)
            diffs.append(_diff(name, there.get("text"), harness.files[name]))
    others = [name for name in reply["others"] if name.endswith(".py")]
    return Drift(
        tuple(missing), tuple(outdated), tuple(changed), tuple(unreadable), tuple(others), "".join(diffs)
    )


def _installed(file: dict[str, Any] | None) -> dict[str, str]:
    """Return the hashes of what was installed there; empty where that is not known."""
    try:
        files = json.loads((file or {}).get("text") or "")["files"]
    except (ValueError, KeyError, TypeError):
        return {}
    return files if isinstance(files, dict) else {}


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
