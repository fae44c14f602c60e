"""From a file to an Inventory: read, expand, validate, check across; every fault at once."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import ValidationError

from hostkit.errors import ConfigError
from hostkit.inventory.models import Inventory
from hostkit.inventory.search import find


def load(path: Path | str | None = None) -> Inventory:
    """Return the checked inventory of `path`, or of the file that `find` names. Raises ConfigError."""
    file = find(path)
    try:
        return Inventory.model_validate(yaml.safe_load(file.read_text()))
    except (yaml.YAMLError, ValidationError) as error:
        raise ConfigError(
            "the inventory is wrong", where=str(file), faults=tuple(str(error).splitlines())
        ) from error
