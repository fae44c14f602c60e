"""Where the files are that travel with hostkit: beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path

from hostkit.errors import HostkitError

_PACKAGE = Path(__file__).parent


def bundled(name: str) -> Path:
    """Return the folder `remote_payloads` or `inventory` that came with this hostkit."""
    for place in (_PACKAGE / "_bundled" / name, _PACKAGE.parent / name):
        if place.is_dir():
            return place
    raise HostkitError(f"the folder {name} is missing", where=str(_PACKAGE), hint="install hostkit again")
