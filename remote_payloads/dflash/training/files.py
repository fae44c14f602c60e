"""The folders of a training run: step_N with weights and resume state apart, retention, states that diverged."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dflash.drafter import checkpoint
from dflash.drafter.config import DraftConfig
from dflash.errors import Refused
from dflash.files import claim


def save(
    root: Path,
    step: int,
    *,
    config: DraftConfig,
    weights: dict[str, Tensor],
    about: dict[str, Any],
    state: dict[str, Any],
) -> Path:
    """Write step_N/: first the resume state, then checkpoint.pt, whose name is what others wait for."""
    folder = root / f"step_{step}"
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint.write(folder / checkpoint.STATE_NAME, {"format": checkpoint.FORMAT, "step": step, **state})
    content = {
        "format": checkpoint.FORMAT,
        "step": step,
        "config": config.document(),
        "tap_convention": "0-based decoder layers; feature = hidden_states[l + 1]",
        **about,
        "draft_state_dict": {name: t.detach().to("cpu", torch.bfloat16) for name, t in weights.items()},
    }
    checkpoint.write(folder / checkpoint.NAME, content)
    return folder / checkpoint.NAME


def save_diverged(root: Path, step: int, state: dict[str, Any]) -> Path:
    """Keep the state of a run that diverged, apart from the good checkpoints: never taken for one."""
    file = root / "diverged" / f"at_{step}" / checkpoint.STATE_NAME
    checkpoint.write(file, {"format": checkpoint.FORMAT, "step": step, **state})
    return file


@contextmanager
def claimed(root: Path) -> Iterator[None]:
    """Hold a run's folder (its own lock, no file), and clear what a killed run left half written.

    The kernel lets go of the lock when its holder ends, however it ends.
    """
    root.mkdir(parents=True, exist_ok=True)
    folder = os.open(root, os.O_RDONLY)
    try:
        held = claim(folder)
        if held is False:
            raise Refused(f"{root}: another run is writing here", "another --out, or end that run first")
        if held:  # on a file system without locks nothing can be known, and nothing is taken away
            _clear(root)
        yield
    finally:
        os.close(folder)


def _clear(root: Path) -> None:
    for left in [*root.glob("step_*/.*.tmp"), *root.glob("diverged/*/.*.tmp")]:
        left.unlink(missing_ok=True)
    for doomed in root.glob(".removing_*"):
        shutil.rmtree(doomed, ignore_errors=True)


def discard(root: Path, step: int) -> None:
    """Take away a step that was not saved whole: it holds space, and nobody could resume from it."""
    folder = root / f"step_{step}"
    if not (folder / checkpoint.NAME).is_file():
        shutil.rmtree(folder, ignore_errors=True)


def steps(root: Path) -> list[int]:
    """Steps that have both files, in order. Both are written by rename, so that they are whole."""
    found = []
    for folder in root.glob("step_*"):
        match = re.fullmatch(r"step_(\d+)", folder.name)
        if match and all((folder / name).is_file() for name in (checkpoint.NAME, checkpoint.STATE_NAME)):
            found.append(int(match[1]))
    return sorted(found)


def newest_state(root: Path, config: DraftConfig) -> dict[str, Any] | None:
    """The state to resume from, None in a fresh folder; refuses one of another drafter."""
    found = steps(root)
    if not found:
        return None
    state = checkpoint.read(root / f"step_{found[-1]}" / checkpoint.STATE_NAME)
    if DraftConfig.parse(state["config"]) != config:
        raise Refused(
            f"{root}: step_{found[-1]} was trained with another drafter config",
            "another --out, or the same flags",
        )
    return state


def retain(root: Path, newest: int, every: int) -> list[int]:
    """Remove all but the newest N checkpoints and every Mth step; 0 keeps all. Returns what was removed.

    A folder is renamed before it is deleted: half a folder is never taken for a checkpoint.
    """
    if newest <= 0:
        return []
    removed = []
    for step in steps(root)[:-newest]:
        if every > 0 and step % every == 0:
            continue
        doomed = (root / f"step_{step}").rename(root / f".removing_{step}")
        shutil.rmtree(doomed)
        removed.append(step)
    return removed
