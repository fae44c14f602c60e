"""What a sound file says is what the inventory holds; a new case is two new files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hostkit.inventory import Inventory
from hostkit.inventory.loading import check_bytes

from .cases import ENVIRON, cases


@pytest.mark.parametrize("file", cases("sound"))
def test_a_sound_file_is_what_it_says(file: Path) -> None:
    loaded = check_bytes(file.read_bytes(), file, ENVIRON)
    expected: dict[str, Any] = json.loads(file.with_suffix(".json").read_text())
    assert {path: at(loaded.inventory, path) for path in expected} == expected


def at(value: Any, path: str) -> Any:
    for part in path.split("."):
        value = value[part] if isinstance(value, dict) else getattr(value, part)
    return value


def test_a_variable_that_becomes_a_value_leaves_plain_text() -> None:
    file = b"hostkit: 1\narchive: ${HOME}/archive\nhosts: {a: {address: h, user: '${WORD}'}}\n"
    inventory = check_bytes(file, Path("f"), ENVIRON).inventory
    assert isinstance(inventory, Inventory)
    assert type(inventory.archive) is str
    assert type(inventory.hosts["a"].user) is str


def test_what_has_no_effect_is_noted_and_no_fault() -> None:
    file = b"hostkit: 1\narchive: /a/b\nhosts:\n  h: {address: h}\n  c: {pct: 200, via: h, port: 22}\n"
    loaded = check_bytes(file, Path("f"))
    assert loaded.notes == ("f:5: hosts.c.port: port has no effect on a host with pct; it may be left out",)
