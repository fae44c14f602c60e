"""Whether a drafter belongs to a target: its shape must, and what it says of its training should.

Standard library only, Python 3.8: the preflight says it before anything is loaded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

from dflash.drafter.config import DraftConfig
from dflash.errors import Refused
from dflash.evaluation.memory import shape_of


def misfits(config: DraftConfig, target_config: Dict[str, Any]) -> List[str]:
    """Why a drafter of this config cannot run on this target at all."""
    shape = shape_of(target_config)
    depth = config.num_target_layers
    if config.depth_guessed:  # then it is only known that all taps lie below it
        depth = max(depth, shape.layers)
    pairs = (
        ("hidden size", config.hidden_size, shape.hidden),
        ("depth in layers", depth, shape.layers),
        ("vocabulary", config.vocab_size, shape.vocab),
    )
    return [
        "the drafter was made for a target whose {} is {}; this one's is {}".format(what, made_for, found)
        for what, made_for, found in pairs
        if made_for != found
    ]


def refuse_mismatch(
    config: DraftConfig, about: Dict[str, Any], target: Path, identity: Dict[str, Any]
) -> None:
    """Refuse a drafter of another target's shape, or that says it was trained on another vocabulary."""
    wrong = misfits(config, json.loads((target / "config.json").read_text(encoding="utf-8")))
    if wrong:
        raise Refused("; ".join(wrong), "the target that the drafter was trained on")
    trained = about.get("target")
    if isinstance(trained, dict) and _differ(trained, identity, "vocab_sha256"):
        raise Refused(
            "the drafter was trained on vocabulary {:.12}, the target has {:.12}".format(
                trained["vocab_sha256"], identity["vocab_sha256"]
            ),
            "the same token ids mean other text",
        )


def strangeness(about: Dict[str, Any], identity: Dict[str, Any], thinking: bool) -> List[str]:
    """In what the drafter was, by its own account, trained on something else than it is measured on."""
    said = []
    trained = about.get("target")
    if isinstance(trained, dict):
        if _differ(trained, identity, "template_sha256"):
            said.append("trained with another chat template than this target's")
        elif _differ(trained, identity, "fingerprint"):
            said.append("trained on another revision of the target: {}".format(trained.get("id")))
    mode = about.get("thinking")
    if isinstance(mode, bool) and mode != thinking:
        said.append(
            "trained with thinking {}, measured with it the other way".format("on" if mode else "off")
        )
    return said


def _differ(one: Dict[str, Any], two: Dict[str, Any], name: str) -> bool:
    return bool(one.get(name) and two.get(name) and one[name] != two[name])
