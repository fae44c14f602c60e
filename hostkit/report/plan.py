"""Show a plan: what each step will do, where, before it does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hostkit.formatting import age, size
from hostkit.report.console import remote, sanitize_document
from hostkit.sanitize import one_line

if TYPE_CHECKING:
    from rich.console import Console


def show(document: dict[str, Any], console: Console) -> None:
    """Print a `hostkit.plan/1` document."""
    from rich.text import Text

    document = sanitize_document(document)
    console.print(Text.assemble(("plan: ", "bold"), remote(one_line(document["title"]))))
    for step in document["steps"]:
        console.print(
            Text.assemble(
                "  ", (step["name"], "bold"), f" on {step['host']}: ", remote(one_line(step["summary"]))
            ),
            soft_wrap=True,
        )
        for effect in step["effects"]:
            console.print(Text.assemble("    ", remote(one_line(_words(effect)), "dim")), soft_wrap=True)
    for note in document.get("notes", []):
        console.print(Text.assemble(("note: ", "yellow"), remote(one_line(note))), soft_wrap=True)
    console.print("nothing was done")


def _words(effect: dict[str, Any]) -> str:
    words = f"{effect['kind']} {effect['host']}"
    if "path" in effect:
        words += f":{effect['path']}"
    if effect.get("bytes"):
        words += f" ({size(effect['bytes'])})"
    if "identity" in effect:
        words += f" pid {effect['identity']['pid']}"
    if "argv" in effect:
        words += ": " + " ".join(effect["argv"])
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
    return words + (f" [{', '.join(parts)}]" if parts else "")
