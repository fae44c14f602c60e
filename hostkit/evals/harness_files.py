"""The files of a harness on both sides: hashed here and on the host before either is trusted, installed by hash."""

from __future__ import annotations

import difflib
import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hostkit.errors import DataError, RefusedError
from hostkit.inventory.models import Host
from hostkit.jobs import install_files
from hostkit.transport.base import Transport
from hostkit.transport.programs.run import run_program

_TEXT_LIMIT = 1 << 18
MANIFEST = "hostkit-harness.json"  # beside the files: what was installed, so that an edit differs from age


@dataclass(frozen=True)
class HarnessFiles:
    """The files of a harness on this side, by name below their folder."""

    folder: Path
    names: tuple[str, ...]

    @cached_property
    def data(self) -> dict[str, bytes]:
        return {name: (self.folder / name).read_bytes() for name in self.names}

    @cached_property
    def hashes(self) -> dict[str, str]:
        return {name: hashlib.sha256(data).hexdigest() for name, data in self.data.items()}

    @property
    def manifest(self) -> bytes:
        """The text of MANIFEST for these files."""
        document = {"schema": "hostkit.harness/1", "files": self.hashes}
        return json.dumps(document, indent=1, sort_keys=True).encode()


@dataclass(frozen=True)
class Drift:
    """What differs on the host.

    `outdated`: installed by an older hostkit and untouched since. `dropped`: installed by an older one and no part
    of the harness any more, with the hash that they were installed with. `others`: not hostkit's, but importable.
    """

    missing: tuple[str, ...] = ()
    outdated: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    dropped: dict[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    diff: str = ""

    @property
    def none(self) -> bool:
        return not (self.missing or self.outdated or self.changed or self.unreadable or self.dropped)

    def document(self, host: str, folder: str) -> dict[str, Any]:
        """Return the `hostkit.harness-drift/1` document."""
        return {
            "schema": "hostkit.harness-drift/1",
            "host": host,
            "folder": folder,
            "missing": list(self.missing),
            "outdated": list(self.outdated),
            "changed": list(self.changed),
            "unreadable": list(self.unreadable),
            "dropped": sorted(self.dropped),
            "others": list(self.others),
            "diff": self.diff,
        }


def drift(transport: Transport, python: str, files: HarnessFiles, folder: str) -> Drift:
    """Hash the host's copy in `folder` and compare it with this side. One round trip, reads only."""
    request = {"folder": folder, "names": [*files.names, MANIFEST], "text_limit": _TEXT_LIMIT}
    reply = run_program(transport, python, "hashes", request, retry=True)
    installed = _installed(reply["files"].get(MANIFEST))
    missing: list[str] = []
    outdated: list[str] = []
    changed: list[str] = []
    unreadable: list[str] = []
    diffs: list[str] = []
    for name in files.names:
        copy = reply["files"].get(name)
        if copy is None:
            missing.append(name)
        elif copy["sha256"] is None:
            unreadable.append(f"{name} ({copy['reason']})")
        elif copy["sha256"] != files.hashes[name]:
            (outdated if installed.get(name) == copy["sha256"] else changed).append(name)
            diffs.append(_diff(name, copy.get("text"), files.data[name]))
    beside = [name for name in reply["others"] if name.endswith(".py")]
    return Drift(
        missing=tuple(missing),
        outdated=tuple(outdated),
        changed=tuple(changed),
        unreadable=tuple(unreadable),
        dropped={name: installed[name] for name in reply["others"] if name in installed},
        others=tuple(name for name in beside if name not in installed),
        diff="".join(diffs),
    )


@dataclass(frozen=True)
class HarnessState:
    """What is to be installed and removed on the host, what lies beside it, and a line for a person."""

    wanted: tuple[str, ...]
    others: tuple[str, ...]
    summary: str
    dropped: dict[str, str] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        return not (self.wanted or self.dropped)


def compare_harness(
    transport: Transport, host: Host, files: HarnessFiles, folder: str, *, update: bool
) -> HarnessState:
    """Compare the host's harness with ours; writes nothing.

    Missing files and those of an older hostkit are to be installed; files that were changed there are refused, or
    replaced where `update` asks for it.
    """
    found = drift(transport, host.python, files, folder)
    where = f"{transport.host}:{folder}"
    if found.unreadable:
        raise DataError(
            "cannot be read: " + ", ".join(found.unreadable),
            where=where,
            hint="its files must be readable for the account that hostkit logs in as",
        )
    if found.changed and not update:
        raise RefusedError(
            f"harness files were changed on the host: {', '.join(found.changed)}",
            rule="harness-drift",
            where=where,
            hint="--show-drift prints the difference, --update-harness replaces them",
        )
    total = len(files.names)
    wanted = (*found.missing, *found.outdated, *(found.changed if update else ()))
    summary = f"{total - len(wanted)} of {total} files equal"
    summary += f", {len(wanted)} to install" if wanted else ""
    summary += f", {len(found.dropped)} of an older hostkit to remove" if found.dropped else ""
    return HarnessState(wanted, found.others, summary, found.dropped)


def install_harness(
    transport: Transport, host: Host, files: HarnessFiles, folder: str, state: HarnessState
) -> tuple[str, ...]:
    """Install what is wanted, with the manifest, and remove what an older hostkit installed and nobody changed.

    Returns what of an older hostkit stays, since it was edited on the host.
    """
    data = {name: files.data[name] for name in state.wanted} | {MANIFEST: files.manifest}
    installed = install_files(transport, host, data, folder, remove=state.dropped)
    return tuple(sorted(set(state.dropped) - set(installed.removed)))


def _installed(file: dict[str, Any] | None) -> dict[str, str]:
    """Return the hashes of what was installed there; empty where that is not known."""
    try:
        files = json.loads((file or {}).get("text") or "")["files"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return files if isinstance(files, dict) else {}


def _diff(name: str, copy: str | None, ours: bytes) -> str:
    if copy is None:
        return f"{name}: too large to show\n"
    lines = difflib.unified_diff(
        copy.splitlines(keepends=True),
        ours.decode("utf-8", "replace").splitlines(keepends=True),
        f"host/{name}",
        f"hostkit/{name}",
    )
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)
