"""Proof that an evaluation keeps to itself: no visible GPU, and what it really used."""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from dflash.errors import Refused

HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
BEGAN = time.monotonic()


def hide_gpus() -> None:
    """Hide all GPUs from this process. Must come before torch is imported."""
    if "torch" in sys.modules:
        import torch

        if torch.cuda.is_initialized():
            raise Refused("CUDA was initialized before the GPUs could be hidden")
    os.environ.update(HIDDEN)


def refuse_gpus() -> None:
    """Refuse to go on when torch still sees a GPU."""
    import torch

    if torch.cuda.is_available():
        raise Refused("a GPU is visible although all were hidden", "evaluations run on the CPU alone")


def account() -> dict[str, Any]:
    """Visible devices, peak memory, CPU and wall seconds, and the kernel's view of our place."""
    import torch

    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "cuda_available": torch.cuda.is_available(),
        "peak_rss_bytes": usage.ru_maxrss * 1024,
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 2),
        "wall_seconds": round(time.monotonic() - BEGAN, 2),
        "oom_score_adj": _number("/proc/self/oom_score_adj"),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
    }


def _number(file: str) -> int | None:
    try:
        return int(Path(file).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
