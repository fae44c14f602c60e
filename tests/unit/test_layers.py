"""Imports go one way through the rooms of hostkit, those within functions too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

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


# --- no circles, and what a room may know of


CHECKOUT = ROOT.parent
TREES = {
    "hostkit": (CHECKOUT, "hostkit"),
    "remote": (ROOT / "remote", ""),
    "payloads": (CHECKOUT / "remote_payloads", ""),
}
OUTSIDE_WORLD = {"fabric", "invoke", "paramiko", "rich"}
PURE = (
    "hostkit.inventory",
    "hostkit.checkpoints",
    "hostkit.liveness",
    "hostkit.evals.results",
    "hostkit.evals.compare",
)


def modules(tree: str) -> dict[str, Path]:
    """Return the files of a tree by the dotted names under which it imports them."""
    top, below = TREES[tree]
    files = {}
    for file in (top / below).rglob("*.py"):
        parts = file.relative_to(top).with_suffix("").parts
        if tree == "hostkit" and "remote" in parts[:2]:
            continue
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return files


def imported(file: Path) -> set[str]:
    """Return every name that a file may mean by its imports, within functions and for types alone too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@pytest.mark.parametrize("tree", TREES)
def test_no_module_imports_itself_by_way_of_others(tree: str) -> None:
    files = modules(tree)
    sorter = TopologicalSorter({name: imported(file) & set(files) - {name} for name, file in files.items()})
    sorter.prepare()  # raises CycleError, which names the circle


@pytest.mark.parametrize("tree", ["remote", "payloads"])
def test_what_runs_on_hosts_knows_nothing_of_hostkit(tree: str) -> None:
    files = modules(tree)
    assert len(files) > 30
    assert not [
        name for name, file in files.items() if any(n.split(".")[0] == "hostkit" for n in imported(file))
    ]


def test_the_core_touches_no_network_and_no_terminal_and_torch_is_the_payloads_alone() -> None:
    files = modules("hostkit")
    tops = {name: {n.split(".")[0] for n in imported(file)} for name, file in files.items()}
    assert not [name for name in files if name.startswith(PURE) and tops[name] & OUTSIDE_WORLD]
    assert not [name for name in files if "torch" in tops[name]]
