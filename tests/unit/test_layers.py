"""Imports go one way through the rooms of hostkit, those within functions too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2] / "hostkit"
FLOORS = (  # from the ground up; rooms of one floor do not import each other
    ("ground",),
    ("inventory",),
    ("transport",),
    ("checkpoints",),
    ("liveness",),
    ("jobs", "staging"),
    ("evals",),
    ("report",),
    ("practice",),
    ("tasks",),
    ("command line",),
)
COMMAND_LINE = ("cli", "program", "help")
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}


def room_of(name: str) -> str:
    """Return the room of a dotted name such as hostkit.jobs.guard."""
    parts = name.split(".")
    if len(parts) > 1 and (ROOT / parts[1]).is_dir():
        return parts[1]
    return "command line" if len(parts) > 1 and parts[1] in COMMAND_LINE else "ground"


def imports() -> Iterator[tuple[str, str]]:
    """Yield each import of a module of hostkit by another: who, and what."""
    for file in ROOT.rglob("*.py"):
        parts = file.relative_to(ROOT.parent).with_suffix("").parts
        if parts[1] == "remote":
            continue
        importer = ".".join(parts)
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = (
                    [node.module] if node.module != "hostkit" else [f"hostkit.{a.name}" for a in node.names]
                )
            else:
                continue
            yield from ((importer, name) for name in names if name.split(".")[0] == "hostkit")


def test_nobody_imports_upwards_or_sideways() -> None:
    wrong = []
    for importer, imported in imports():
        above, below = room_of(importer), room_of(imported)
        if above != below and FLOOR[above] <= FLOOR[below]:
            wrong.append(f"{importer} imports {imported}")
    assert wrong == []


def test_every_room_has_its_floor() -> None:
    rooms = {folder.name for folder in ROOT.iterdir() if (folder / "__init__.py").is_file()}
    assert rooms - {"remote"} <= set(FLOOR)
    assert any(importer.startswith("hostkit.tasks.") for importer, _ in imports())
