"""Results for the tests: as the payload writes them, made from block lengths."""

from __future__ import annotations

import copy
from typing import Any

from hostkit.evals.results import EvalResult


def document(
    lengths: dict[str, list[int]],
    *,
    step: int = 4000,
    sha: str | None = None,
    evaluation_id: str = "e" * 16,
    **changes: Any,
) -> dict[str, Any]:
    """Return a result document with these accepted lengths by prompt; `changes` are `part__key=value`."""
    blocks = [length for prompt in lengths.values() for length in prompt]
    found: dict[str, Any] = {
        "schema": "hostkit.eval-result/1",
        "id": evaluation_id,
        "created_at": "2026-11-30T10:15:00Z",
        "status": "complete",
        "checkpoint": {
            "path": "/c", "sha256": sha or f"{step:064d}", "step": step, "block_size": 16, "format": "torch-zip",
        },
        "settings": {
            "block_size": 16, "trained_block_size": 16, "blocks_per_prompt": max(map(len, lengths.values())), "seed": 0,
            "max_new_tokens": 512, "max_prompts": None, "thinking": False, "dtype": "float32", "threads": 1,
            "ddtree_budgets": [16], "metric_definition": "hostkit/1",
        },
        "target": {"id": "t", "config_sha256": "c", "vocab_sha256": "v", "template_sha256": "m", "dtype": "float32"},
        "references": {"source": "target", "model": "t"},
        "coverage": {
            "prompts_asked": len(lengths), "prompts_done": len(lengths), "blocks": len(blocks), "missing": [],
            "by_domain": {"code": {"asked": len(lengths), "done": len(lengths), "blocks": len(blocks)}},
        },
        "metrics": {
            "accept_len": {
                "mean": sum(blocks) / len(blocks), "sum": sum(blocks), "n": len(blocks),
                "prompts": len(lengths), "interval": None,
            }
        },
        "per_prompt": [
            {
                "id": name, "domain": "code", "reference_sha256": f"r-{name}",
                "blocks": [{"anchor": 10 + i, "accept_len": n, "ddtree": {"16": n + 1}} for i, n in enumerate(values)],
            }
            for name, values in lengths.items()
        ],
        "target_agreement": {"agree": 99, "of": 100, "rate": 0.99, "passed": True},
        "provenance": {"harness": {"a.py": "1"}, "libraries": {"torch": "2.13.0"}},
    }  # fmt: skip
    found = copy.deepcopy(found)
    for key, value in changes.items():
        part, _, name = key.partition("__")
        if name:
            found[part][name] = value
        else:
            found[part] = value
    return found


def result(lengths: dict[str, list[int]], **changes: Any) -> EvalResult:
    """Return such a document as a model."""
    return EvalResult.model_validate(document(lengths, **changes))
