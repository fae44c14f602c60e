"""Which dtype a target runs in: as asked, else as its config says; float16 never."""

from __future__ import annotations

import json
from pathlib import Path

import torch


def target_dtype(folder: Path, asked: str) -> torch.dtype:
    """The dtype asked for, or the one that the target's config states (never float16)."""
    if asked == "auto":
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        text = config.get("text_config") or config
        asked = text.get("dtype") or text.get("torch_dtype") or config.get("dtype") or "bfloat16"
    return torch.float32 if asked == "float32" else torch.bfloat16
