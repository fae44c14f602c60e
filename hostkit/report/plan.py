"""Print a plan: what each step will do, and where, before it does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hostkit.formatting import age, size
from hostkit.report.console import remote, sanitize_document
from hostkit.sanitize import one_line

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class StepRow:
    """One step, with a line for each effect."""

    name: str
    host: str
    summary: str
    effects: tuple[str, ...]


def rows_of(document: dict[str, Any]) -> list[StepRow]:
    """Return the steps of a `hostkit.plan/1` document."""
    return [
        StepRow(
            step["name"],
            step["host"],
            one_line(step["summary"]),
            tuple(one_line(_effect(effect)) for effect in step["effects"]),
        )
        for step in document["steps"]
    ]


def show(document: dict[str, Any], console: Console) -> None:
    """Print a `hostkit.plan/1` document."""
    from rich.text import Text

    document = sanitize_document(document)
    console.print(Text.assemble(("plan: ", "bold"), remote(one_line(document["title"]))))
    for row in rows_of(document):
        line = Text.assemble("  ", (row.name, "bold"), f" on {row.host}: ", remote(row.summary))
        console.print(line, soft_wrap=True)
        for effect in row.effects:
            console.print(Text.assemble("    ", remote(effect, "dim")), soft_wrap=True)
    for note in document.get("notes", []):
        console.print(Text.assemble(("note: ", "yellow"), remote(one_line(note))), soft_wrap=True)
    console.print("nothing was done")


def _effect(effect: dict[str, Any]) -> str:
    text = f"{effect['kind']} {effect['host']}"
    if "path" in effect:
        text += f":{effect['path']}"
    if effect.get("bytes"):
        text += f" ({size(effect['bytes'])})"
    if "identity" in effect:
        text += f" pid {effect['identity']['pid']}"
    if "argv" in effect:
        text += ": " + " ".join(effect["argv"])
    limits = effect.get("limits") or {}
    parts = []
    if "memory_bytes" in limits:
        parts.append(f"memory {size(limits['memory_bytes'])}")
    if "cpus" in limits:
        parts.append(f"{limits['cpus']} CPU" + ("s" if limits["cpus"] != 1 else ""))
    if "wall_seconds" in limits:
        parts.append(f"{age(limits['wall_seconds'])} at most")
    if effect["kind"] == "spawns":
        parts.append("no GPU" if effect.get("gpus") == "none" else f"GPUs {effect.get('gpus')}")
    return text + (f" [{', '.join(parts)}]" if parts else "")
