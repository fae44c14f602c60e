"""Which files an evaluation runs, and their hashes: what a result or a comparison of two copies rests on.

Standard library only, Python 3.8. Names are relative to the folder of the scripts. Rooms that no evaluation imports
do not count: an edit of the trainer makes no evaluation another one.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Dict

SCRIPTS = ("eval_drafter.py", "preflight.py")
OTHER_ROOMS = ("features", "tiny", "training")
SUFFIXES = (".py", ".jsonl")
HERE = Path(__file__).resolve().parents[1]


def hashes(folder: Path = HERE) -> Dict[str, str]:
    """sha256 of the scripts and of every .py and .jsonl file in the rooms that they may import from."""
    rooms = sorted(path for path in (folder / "dflash").iterdir() if path.name not in OTHER_ROOMS)
    files = [folder / name for name in SCRIPTS]
    for room in rooms:
        files += sorted(room.rglob("*")) if room.is_dir() else [room]
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
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
