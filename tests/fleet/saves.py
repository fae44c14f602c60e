"""Checkpoints in a container of the fleet, and what shows that nobody has touched them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from tests.fleet.fleet import Fleet

ROOT = "/workspace/checkpoints"


def torch_file(path: Path, *, megabytes: int = 0, step: int = 20) -> Path:
    """Write a real checkpoint of about that size."""
    import torch

    weight = torch.randint(0, 255, (max(megabytes, 1) << 20 if megabytes else 64,), dtype=torch.uint8)
    torch.save({"drafter": {"weight": weight}, "step": step}, path)
    return path


def save(fleet: Fleet, source: Path, step: int, *, root: str = ROOT, host: str = "ct200") -> Path:
    """Put a checkpoint where a run would save it; returns its path as seen from here."""
    folder = inside(fleet, host, root) / f"step_{step}"
    folder.mkdir(parents=True)
    target = folder / "checkpoint.pt"
    target.write_bytes(source.read_bytes())
    return target


def inside(fleet: Fleet, host: str, path: str) -> Path:
    """Return a path of a host as seen from here."""
    return fleet.root(host) / path.removeprefix("/")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def listing(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return every entry below a folder with all that a touch would change: mode, owner, inode, size, mtime, ctime."""
    found: dict[str, tuple[int, ...]] = {}
    for place, folders, files in os.walk(folder):
        for name in [".", *folders, *files]:
            path = Path(place, name)
            seen = path.lstat()
            facts = (
                seen.st_mode,
                seen.st_uid,
                seen.st_gid,
                seen.st_ino,
                seen.st_size,
                seen.st_mtime_ns,
                seen.st_ctime_ns,
            )
            found[str(path.relative_to(folder))] = facts
    return found
