"""Python's own standard library as text to train on and to be tested with, split by file, always the same."""

from __future__ import annotations

import sysconfig
from pathlib import Path

HELD_OUT = 8


def files(root: Path | None = None) -> list[Path]:
    """The top-level modules of the standard library, or the text files of a folder, by name."""
    folder = root or Path(sysconfig.get_paths()["stdlib"])
    pattern = "*.py" if root is None else "*"
    return sorted(f for f in folder.glob(pattern) if f.is_file() and f.stat().st_size > 2000)


def split(root: Path | None = None) -> tuple[list[bytes], list[bytes]]:
    """Contents of the training files and of every n-th file that is held out of them."""
    found = [f.read_bytes() for f in files(root)]
    every = max(2, len(found) // HELD_OUT)
    return [t for i, t in enumerate(found) if i % every], [t for i, t in enumerate(found) if not i % every]
