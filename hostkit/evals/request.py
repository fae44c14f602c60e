"""What is asked of an evaluation: its sample, its id, and where things lie on its host. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from hostkit.inventory.models import Eval


@dataclass(frozen=True)
class Sample:
    """How many blocks of each prompt. The quick sample is nested in the full one: same seed, first anchors."""

    name: Literal["quick", "full"]
    blocks_per_prompt: int

    @classmethod
    def of(cls, evaluation: Eval, *, quick: bool) -> Sample:
        """Return the quick or the full sample of an evaluation."""
        if quick:
            return cls("quick", min(evaluation.quick_blocks_per_prompt, evaluation.blocks_per_prompt))
        return cls("full", evaluation.blocks_per_prompt)


@dataclass(frozen=True)
class WorkspacePaths:
    """Where things lie on the evaluation host."""

    workspace: str

    @property
    def harness(self) -> str:
        return f"{self.workspace}/harness"

    @property
    def staged(self) -> str:
        return f"{self.workspace}/staged"  # where `hostkit stage` puts them too

    @property
    def cache(self) -> str:
        return f"{self.workspace}/cache"


def evaluation_id(
    name: str,
    evaluation: Eval,
    sample: Sample,
    source: dict[str, Any],
    *,
    settings: dict[str, Any],
    hashes: dict[str, str],
    prompts_sha256: str,
) -> str:
    """Return the 16 hex digits that stand for one checkpoint under one set of settings.

    `source` is where the checkpoint is and what its file was like: host, path, step, size, mtime_ns, inode.
    `settings` and `hashes` are what the harness says of itself: of its files those that really run.
    """
    request = {
        "name": name,
        "sample": asdict(sample),
        "source": {key: source.get(key) for key in ("host", "path", "step", "size", "mtime_ns", "inode")},
        "harness": hashes,
        "prompts": prompts_sha256,
        "host": evaluation.host,
    } | settings
    text = json.dumps(request, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
