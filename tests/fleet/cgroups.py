"""One control group per fleet and hierarchy: whatever runs in the fleet is found below it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from tests.fleet.processes import until

_MOUNTS = Path("/proc/self/mounts")


def hierarchies() -> list[Path]:
    """Return the mount points of this machine's cgroup hierarchies, each once."""
    found: dict[str, Path] = {}
    for line in _MOUNTS.read_text().splitlines():
        _source, where, kind, options = line.split()[:4]
        if kind == "cgroup2":
            found.setdefault("2", Path(where))
        elif kind == "cgroup":
            controllers = {
                word for word in options.split(",") if word.startswith("name=") or _is_controller(word)
            }
            found.setdefault(",".join(sorted(controllers)), Path(where))
    return [path for path in found.values() if os.access(path, os.W_OK)]


def _is_controller(word: str) -> bool:
    return any(line.split()[0] == word for line in Path("/proc/cgroups").read_text().splitlines()[1:])


def create(name: str) -> list[Path]:
    """Make the group in every hierarchy; returns their folders."""
    groups = []
    for root in hierarchies():
        group = root / name
        group.mkdir(exist_ok=True)
        for share in (
            "cpuset.cpus",
            "cpuset.mems",
        ):  # version 1: empty at birth, and then nothing can be put in
            if (group / share).exists() and not (group / share).read_text().strip():
                (group / share).write_text((root / share).read_text())
        groups.append(group)
    return groups


def members(name: str) -> set[int]:
    """Return the pids in the group and in all groups below it."""
    pids: set[int] = set()
    for folder in _folders(name):
        with contextlib.suppress(OSError):
            pids.update(int(line) for line in (folder / "cgroup.procs").read_text().split())
    return pids


def remove(name: str) -> None:
    """End whatever is left in the group, then remove it. Its name is ours alone."""

    def cleared() -> bool:
        for pid in members(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not members(name)

    _thaw(name)
    until(cleared, f"an empty group {name}")
    until(lambda: _removed(name), f"the removal of {name}")


def _removed(name: str) -> bool:
    for folder in _folders(name):
        with contextlib.suppress(OSError):  # busy for a moment after its last process
            folder.rmdir()
    return not any(_folders(name))


def _thaw(name: str) -> None:
    for folder in _folders(name):
        for file, word in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
            if (folder / file).exists():
                with contextlib.suppress(OSError):
                    (folder / file).write_text(word)


def _folders(name: str) -> Iterator[Path]:
    """Yield the group's folders, innermost first."""
    for root in hierarchies():
        for folder, _names, _files in os.walk(root / name, topdown=False):
            yield Path(folder)
