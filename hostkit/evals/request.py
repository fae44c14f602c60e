"""What is asked of an evaluation: its sample, its settings, its id, and the payload's command lines. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from hostkit.inventory.models import Eval

DDTREE_BUDGETS = (16, 64)


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
    hashes: dict[str, str],
    prompts_sha256: str,
) -> str:
    """Return the 16 hex digits that stand for one checkpoint under one set of settings.

    `source` is where the checkpoint is and what its file was like: host, path, step, size, mtime_ns, inode.
    """
    asked = {
        "name": name,
        "sample": asdict(sample),
        "source": {key: source.get(key) for key in ("host", "path", "step", "size", "mtime_ns", "inode")},
        "harness": hashes,
        "prompts": prompts_sha256,
        "host": evaluation.host,
        "target": evaluation.target.model_dump() if evaluation.target else None,
        "settings": evaluation.model_dump(
            include={"block_size", "seed", "max_prompts", "max_new_tokens", "thinking", "python"}
        ),
    }
    text = json.dumps(asked, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def payload_flags(evaluation: Eval, sample: Sample, prompts: str) -> list[str]:
    """Return the flags that the preflight and the evaluation share."""
    paths = WorkspacePaths(evaluation.workspace)
    flags = ["--prompts", prompts, "--work", paths.cache, "--seed", str(evaluation.seed)]
    flags += ["--blocks-per-prompt", str(sample.blocks_per_prompt)]
    flags += ["--max-new-tokens", str(evaluation.max_new_tokens)]
    if evaluation.target is not None:
        flags += ["--target", evaluation.target.model]
        if evaluation.target.api is not None:
            flags += ["--api", evaluation.target.api]
    if evaluation.max_prompts is not None:
        flags += ["--max-prompts", str(evaluation.max_prompts)]
    if evaluation.block_size is not None:
        flags += ["--block-size", str(evaluation.block_size)]
    if evaluation.thinking:
        flags += ["--thinking"]
    return flags


def evaluate_argv(
    evaluation: Eval, flags: list[str], checkpoint: str, out: str, evaluation_id: str, *, smoke: bool = False
) -> list[str]:
    """Return the command line of the payload on the evaluation host."""
    argv = [evaluation.python, "-u", f"{WorkspacePaths(evaluation.workspace).harness}/eval_drafter.py"]
    argv += ["--checkpoint", checkpoint, *flags, "--out", out, "--id", evaluation_id]
    argv += ["--ddtree", ",".join(map(str, DDTREE_BUDGETS))]
    if evaluation.limits.cpus is not None:
        argv += ["--threads", str(evaluation.limits.cpus)]
    return [*argv, "--smoke"] if smoke else argv
