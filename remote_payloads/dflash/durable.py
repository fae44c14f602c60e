"""Files that are whole or absent: a temporary name, synced, renamed, the folder synced."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO


def write_durably(path: Path, content: bytes | Callable[[BinaryIO], None]) -> None:
    """Write bytes (or let a function write them) so that a kill leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_json(path: Path, document: Any) -> None:
    """Strict JSON (no NaN), written durably."""
    write_durably(path, (json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode())
