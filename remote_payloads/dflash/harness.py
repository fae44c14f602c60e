"""Which files the harness is, and their hashes: what a result or a comparison of two copies rests on.

Standard library only, Python 3.8. Names are relative to the folder of the scripts.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Dict

SUFFIXES = (".py", ".jsonl")


HERE = Path(__file__).resolve().parents[1]


def hashes(folder: Path = HERE) -> Dict[str, str]:
    """sha256 of every .py and .jsonl file directly in the harness's folder."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(
            [folder / "eval_drafter.py", folder / "preflight.py", *(folder / "dflash").rglob("*")]
        )
        if file.suffix in SUFFIXES and file.is_file()
    }


def sha256_of(path: Path) -> str:
    """Hash of a file, or of the weights file in a drafter's folder."""
    if path.is_dir():
        inside = [path / name for name in ("model.safetensors", "checkpoint.pt") if (path / name).is_file()]
        path = (inside or sorted(path.glob("*.safetensors")))[0]
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for piece in iter(lambda: stream.read(1 << 20), b""):
            digest.update(piece)
    return digest.hexdigest()
