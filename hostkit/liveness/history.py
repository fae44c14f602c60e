"""Where the last look at each run is kept: one small file a run, which may be deleted at any time."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path

from pydantic import ValidationError

from hostkit.directories import state_directory
from hostkit.errors import CannotCreateError
from hostkit.inventory.models import Inventory
from hostkit.liveness.past import PastObservation


def place(inventory: Inventory, name: str) -> Path:
    """Return the file of a run: two inventories' runs of one name are two, since their routes or paths differ."""
    run = inventory.runs[name]
    way, host = [], run.host
    while host in inventory.hosts and host not in way:
        way.append(host)
        host = inventory.hosts[host].via or ""
    what = [inventory.hosts[one].model_dump(mode="json") for one in way if one in inventory.hosts]
    text = json.dumps(
        [what, run.model_dump(mode="json", include={"host", "process", "log", "checkpoints"})], sort_keys=True
    )
    file = f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"
    return state_directory(create=False) / "liveness" / file


def recall(path: Path) -> PastObservation | None:
    """Return the last look; None where there is none, or none that can be read."""
    try:
        return PastObservation.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def remember(path: Path, seen: PastObservation) -> None:
    """Keep a look, by rename. A place that cannot be written costs the memory, not the answer."""
    with contextlib.suppress(OSError, CannotCreateError):
        state_directory()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(seen.model_dump_json())
        Path(name).replace(path)
