"""What a prompt's blocks came to, kept on disk: an evaluation that was killed goes on with the next prompt.

A record has the name of everything that decides it: weights and config of the drafter, the reference and its
features, the target, the settings, the code, the libraries and what arithmetic they choose. Written by rename.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from dflash import harness
from dflash.data.cache_keys import block_file, block_key, feature_key
from dflash.data.references import Reference
from dflash.evaluation.evaluator import Block, PromptResult
from dflash.files import write_json

Compared = tuple[int, int]
"""Drafted tokens that another dtype changes, and of how many."""


class BlockRecords:
    """The records of one drafter at one target with one set of settings."""

    def __init__(
        self, work: Path, decides: dict[str, Any], identity: dict[str, Any], taps: Sequence[int]
    ) -> None:
        self.work, self.identity, self.taps = work, identity, list(taps)
        self.decides = {
            **decides,
            "harness": harness.hashes(),
            "torch": torch.__version__,
            "arithmetic": [
                platform.machine(),
                torch.backends.cpu.get_cpu_capability(),
                torch.get_num_threads(),
            ],
        }

    def file(self, reference: Reference) -> Path:
        """Where the record of a prompt lies; anchors are drawn by the prompt's id."""
        features = feature_key(
            reference.prompt_ids, reference.response_ids, self.identity, self.taps, self.decides["dtype"]
        )
        key = block_key({**self.decides, "prompt": reference.prompt_id, "features": features})
        return block_file(self.work, reference.prompt_id, key)

    def load(self, reference: Reference) -> tuple[PromptResult, Compared | None] | None:
        """A kept record, None where there is none that reads."""
        try:
            document = json.loads(self.file(reference).read_text(encoding="utf-8"))
            result = document["result"]
            result["blocks"] = [Block(**block) for block in result["blocks"]]
            result["loop_streaks"] = {int(anchor): n for anchor, n in result["loop_streaks"].items()}
            result["domain"] = reference.domain
            compared = document["compared"]
            return PromptResult(**result), (compared[0], compared[1]) if compared else None
        except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError, IndexError):
            return None

    def keep(self, reference: Reference, result: PromptResult, compared: Compared | None) -> None:
        """Keep it, whole or not at all."""
        write_json(self.file(reference), {"result": asdict(result), "compared": compared})
