"""The files of the payload that count, and their hashes: what a result or a comparison of two copies rests on.

Standard library only, Python 3.8. Names are relative to the folder of the scripts. What no evaluation imports does
not count in one: an edit of the trainer makes no evaluation another one. A new file counts until it is named here.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Dict, Tuple

NOT_EVALUATED = (
    "check_golden.py",
    "export_drafter.py",
    "extract_features.py",
    "make_tiny_target.py",
    "regenerate.py",
    "store_features.py",
    "train_drafter.py",
    "dflash/data/seeds.py",
    "dflash/features/",
    "dflash/tiny/",
    "dflash/training/",
)
SUFFIXES = (".py", ".jsonl")
HERE = Path(__file__).resolve().parents[1]


def hashes(folder: Path = HERE, without: Tuple[str, ...] = NOT_EVALUATED) -> Dict[str, str]:
    """sha256 of every script, and of every .py and .jsonl file below dflash/, `without` those names and rooms."""
    files = {file.relative_to(folder).as_posix(): file for file in folder.glob("*.py")}
    files.update((file.relative_to(folder).as_posix(), file) for file in (folder / "dflash").rglob("*"))
    return {
        name: hashlib.sha256(file.read_bytes()).hexdigest()
        for name, file in sorted(files.items())
        if file.suffix in SUFFIXES and not name.startswith(without) and file.is_file()
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
