"""Which inventory file is meant: the flag's, the environment's, this directory's, the user's."""

from __future__ import annotations

import os
from pathlib import Path

from hostkit.errors import ConfigError

VARIABLE = "HOSTKIT_INVENTORY"
HERE = Path("inventory") / "fleet.yaml"


def find(path: Path | str | None = None) -> Path:
    """Return the inventory file: `path`, else $HOSTKIT_INVENTORY, else ./inventory/fleet.yaml, else
    fleet.yaml in the user's config directory. What was named must exist: it never falls through to another
    fleet. Raises ConfigError.
    """
    if path is not None:
        return _named(str(path), "--inventory")
    if (named := os.environ.get(VARIABLE)) is not None:
        return _named(named, f"${VARIABLE}")
    candidates = [HERE, user_file()]
    for candidate in candidates:
        if candidate.exists():
            return candidate
    raise ConfigError(
        "no inventory found",
        where=", ".join(str(candidate) for candidate in candidates),
        hint=f"name one with --inventory FILE or ${VARIABLE}, or copy the example to one of these places",
    )


def user_file() -> Path:
    """Return where the user's own inventory is looked for, whether or not it is there."""
    from hostkit.directories import config_directory  # only when no file is named

    return config_directory() / "fleet.yaml"


def _named(text: str, by: str) -> Path:
    if not text.strip():
        raise ConfigError(
            f"{by} is set, but empty", hint="give it the path of an inventory file, or leave it out"
        )
    path = Path(text).expanduser()
    if not path.exists():
        raise ConfigError("no such inventory file", where=str(path), hint=f"named by {by}")
    return path
