"""Where a drafter's weights and config lie, whatever saved it, and its config in our terms.

Standard library only, Python 3.8: the preflight looks in the same places as the loader, without torch.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, Dict

from dflash.drafter.config import DraftConfig, read_document
from dflash.drafter.foreign_formats import is_speculators, speculators_config
from dflash.drafter.plain_pickle import plain_values
from dflash.errors import Refused

WEIGHTS = ("model.safetensors", "checkpoint.pt", "training_state.pt", "pytorch_model.bin")


def weights_file(path: Path) -> Path:
    """The file itself, or the one that a folder holds."""
    if not path.exists():
        raise Refused("{}: no such file or folder".format(path))
    if path.is_file():
        return path
    for name in WEIGHTS:
        if (path / name).is_file():
            return path / name
    shards = sorted(path.glob("*.safetensors"))
    if len(shards) == 1:
        return shards[0]
    raise Refused("{}: no drafter in this folder".format(path), "looked for {}".format(", ".join(WEIGHTS)))


def config_beside(file: Path) -> Dict[str, Any]:
    """The config.json beside a weights file, or one folder up (SpecForge)."""
    places = (file.parent / "config.json", file.parent.parent / "config.json")
    beside = next((place for place in places if place.is_file()), None)
    if beside is None:
        raise Refused("{}: holds no drafter config, and there is no config.json beside it".format(file))
    return read_document(beside)


def parse_config(document: Dict[str, Any]) -> DraftConfig:
    """A config in whichever layout it was saved."""
    return DraftConfig.parse(speculators_config(document) if is_speculators(document) else document)


def config_without_torch(path: Path) -> DraftConfig:
    """The config that the loader would find for a checkpoint."""
    file = weights_file(path)
    # Torch's older format is no archive: its config, if any, is beside it.
    saved = plain_values(file).get("config") if zipfile.is_zipfile(str(file)) else None
    return parse_config(saved if isinstance(saved, dict) else config_beside(file))
