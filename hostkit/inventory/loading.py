"""From a file to an Inventory: read, expand, validate, check across; every fault at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from hostkit.inventory.crosschecks import cross_faults, notes
from hostkit.inventory.document import Document, parse
from hostkit.inventory.faults import Fault, refuse
from hostkit.inventory.models import Inventory
from hostkit.inventory.search import find
from hostkit.inventory.source import decode, read
from hostkit.inventory.wording import faults_of


@dataclass(frozen=True, slots=True)
class Loaded:
    """An inventory, the file it came from, and what in it has no effect."""

    file: Path
    inventory: Inventory
    notes: tuple[str, ...]


def load(path: Path | str | None = None) -> Inventory:
    """Return the checked inventory of `path`, or of the file that `find` names. Raises ConfigError."""
    return check(path).inventory


def check(path: Path | str | None = None) -> Loaded:
    """Return the checked inventory with its file and notes. Raises ConfigError with every fault of the file."""
    file = find(path)
    return check_bytes(read(file), file)


def check_bytes(content: bytes, file: Path, environ: Mapping[str, str] | None = None) -> Loaded:
    """Return the inventory that these bytes are; `file` is what faults call it. Raises ConfigError."""
    text, faults = decode(content)
    document = parse(text, environ) if text else Document()
    faults += _beyond(document.faults, faults)
    inventory = None
    if isinstance(document.data, dict):
        try:
            inventory = Inventory.model_validate(document.data)
        except ValidationError as error:
            faults += faults_of(error.errors(include_url=False), document)
        faults += cross_faults(document)
    if faults or inventory is None:
        raise refuse(str(file), faults)
    return Loaded(file, inventory, tuple(note.text(str(file)) for note in notes(document)))


def _beyond(found: list[Fault], told: list[Fault]) -> list[Fault]:
    """Return the faults of lines that have none yet: a tab is told once, not also as a syntax error."""
    lines = {fault.line for fault in told}
    return [fault for fault in found if fault.path or fault.line not in lines]
