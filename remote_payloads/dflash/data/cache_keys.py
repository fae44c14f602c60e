"""Names of cached references, features and block records: a hash of everything that they depend on.

Standard library only, Python 3.8. A file under another target, template, thinking flag, dtype or list of
taps has the same shape and another meaning; it must not have the same name.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Dict, List

from dflash.data.prompts import Prompt


def reference_key(
    prompt: Prompt, target: Dict[str, Any], *, source: str, max_new_tokens: int, thinking: bool, dtype: str
) -> str:
    """A reference: prompt, template, vocabulary, thinking, length, and who wrote it.

    The target's own text depends on its weights and dtype; a server's model is checked when it is asked.
    """
    document = {
        "prompt": prompt.content(),
        "vocab": target["vocab_sha256"],
        "template": target["template_sha256"],
        "thinking": thinking,
        "max_new_tokens": max_new_tokens,
        "source": source,
        "writer": [target["fingerprint"], dtype] if source == "target" else None,
    }
    return _key(document)


def feature_key(
    prompt_ids: List[int], response_ids: List[int], target: Dict[str, Any], taps: List[int], dtype: str
) -> str:
    """Features: token ids of prompt and response, target revision, taps, dtype, template."""
    return _key(
        {
            "prompt_ids": prompt_ids,
            "response_ids": response_ids,
            "target": target["fingerprint"],
            "template": target["template_sha256"],
            "taps": taps,
            "dtype": dtype,
        }
    )


def reference_file(work: Path, prompt: Prompt, key: str) -> Path:
    """Where a reference is kept; the prompt's id is for people, the key decides."""
    return work / "references" / "{}-{}.json".format(_safe(prompt.id), key)


def feature_file(work: Path, prompt_id: str, key: str) -> Path:
    """Where features are kept."""
    return work / "features" / "{}-{}.safetensors".format(_safe(prompt_id), key)


def block_key(document: Dict[str, Any]) -> str:
    """The measured blocks of a prompt: see block_records.py for what decides them."""
    return _key(document)


def block_file(work: Path, prompt_id: str, key: str) -> Path:
    """Where a prompt's measured blocks are kept."""
    return work / "blocks" / "{}-{}.json".format(_safe(prompt_id), key)


def _safe(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)[:60]


def _key(document: Any) -> str:
    text = json.dumps(document, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]
