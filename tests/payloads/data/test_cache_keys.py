"""Whatever a cached reference or feature rests on is in its name: nothing stale is ever found."""

from __future__ import annotations

from typing import Any

import pytest

from dflash.data.cache_keys import feature_file, feature_key, reference_file, reference_key
from dflash.data.prompts import Prompt

TARGET = {"fingerprint": "f", "vocab_sha256": "v", "template_sha256": "t"}


def features(**change: Any) -> str:
    told: dict[str, Any] = {
        "prompt_ids": [1, 2],
        "response_ids": [3],
        "target": TARGET,
        "taps": [0, 2],
        "dtype": "bfloat16",
    }
    return feature_key(**{**told, **change})


@pytest.mark.parametrize(
    "change",
    [
        {"prompt_ids": [1]},
        {"response_ids": [3, 4]},
        {"prompt_ids": [1, 2, 3], "response_ids": []},
        {"taps": [2, 0]},
        {"taps": [0, 3]},
        {"dtype": "float32"},
        {"target": {**TARGET, "fingerprint": "g"}},
        {"target": {**TARGET, "template_sha256": "u"}},
    ],
)
def test_features_of_anything_else_have_another_name(change: dict[str, Any]) -> None:
    assert features(**change) != features()


TEXT = Prompt("x", "d", None, "text")


def reference(prompt: Prompt = TEXT, **change: Any) -> str:
    told: dict[str, Any] = {"source": "target", "max_new_tokens": 9, "thinking": False, "dtype": "bfloat16"}
    target = change.pop("target", TARGET)
    return reference_key(prompt, target, **{**told, **change})


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": Prompt("x", "d", None, "other")},
        {"prompt": Prompt("x", "d", [{"role": "user", "content": "text"}], None)},
        {"thinking": True},
        {"max_new_tokens": 10},
        {"dtype": "float32"},
        {"source": "api"},
        {"target": {**TARGET, "fingerprint": "g"}},
        {"target": {**TARGET, "template_sha256": "u"}},
        {"target": {**TARGET, "vocab_sha256": "w"}},
    ],
)
def test_references_to_anything_else_have_another_name(change: dict[str, Any]) -> None:
    assert reference(**change) != reference()


def test_a_prompts_name_and_domain_change_nothing_and_cannot_leave_the_folder(tmp_path: Any) -> None:
    assert reference(Prompt("y", "e", None, "text")) == reference()
    for name in ("../../etc/passwd", "a/b", "x" * 500, "\u00fc\n"):
        for file in (
            reference_file(tmp_path, Prompt(name, "d", None, "t"), "k"),
            feature_file(tmp_path, name, "k"),
        ):
            assert file.parent.parent == tmp_path
            file.parent.mkdir(exist_ok=True)
            file.touch()
