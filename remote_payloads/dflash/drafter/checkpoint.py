"""`checkpoint.pt`: a drafter's weights and what they are, as plain data; the optimizer's state lies apart.

    step_N/checkpoint.pt      what an evaluation needs: config, bf16 weights, target, training arguments
    step_N/trainer_state.pt   what a resume needs besides: fp32 weights, moments, schedule, RNG, data position

Tensors, numbers, strings, lists and dicts only: both load with `weights_only=True` and no allow-list.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import torch

from dflash.errors import Refused
from dflash.files import write_durably

FORMAT = "hostkit.dflash/1"
NAME = "checkpoint.pt"
STATE_NAME = "trainer_state.pt"


def read(file: Path) -> dict[str, Any]:
    """Load plain data to the CPU. Never falls back to executing a pickle."""
    try:
        saved = torch.load(file, map_location="cpu", weights_only=True, mmap=False)
    except FileNotFoundError:
        raise Refused(f"{file}: no such file") from None
    except pickle.UnpicklingError as error:
        raise _unpicklable(file, str(error)) from None
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - a damaged pickle fails in as many ways as it has bytes
        first = (str(error).splitlines() or [""])[0][:160]
        if not isinstance(error, (RuntimeError, OSError)):
            first = f"{type(error).__name__} {first}".strip()
        raise Refused(
            f"{file}: not a whole checkpoint: {first}", "copy it again, or take the one before it"
        ) from None
    if not isinstance(saved, dict):
        raise Refused(f"{file}: holds a {type(saved).__name__}, not a dict")
    return saved


def _unpicklable(file: Path, said: str) -> Refused:
    """Torch's own words advise to load without its guard: never passed on."""
    named = re.search(r"GLOBAL (\S+)", said)
    if named is None:
        return Refused(f"{file}: not a checkpoint that torch can read", "is it another kind of file?")
    return Refused(
        f"{file}: holds more than plain data ({named[1]})",
        "save tensors, numbers, strings, lists and dicts only; nothing of it was executed",
    )


def write(file: Path, content: dict[str, Any]) -> None:
    """Save durably; refuses anything that would not load as plain data."""
    _refuse_objects(content, file.name)
    write_durably(file, lambda out: torch.save(content, out))


def _refuse_objects(value: Any, where: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, (str, int)):
                raise Refused(f"{where}: key {key!r} is not plain data")
            _refuse_objects(item, f"{where}.{key}")
    elif isinstance(value, (list, tuple)):
        for item in value:
            _refuse_objects(item, f"{where}[]")
    elif value is not None and type(value) not in (bool, int, float, str, torch.Tensor):
        raise Refused(f"{where}: {type(value).__name__} is not plain data")
