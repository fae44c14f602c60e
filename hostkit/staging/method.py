"""How a checkpoint is brought: only the tensors that an evaluation needs, only its model's files, or all of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from hostkit.checkpoints.fitting import foreign, weights_of
from hostkit.checkpoints.models import Contents, File, Layout, TensorFacts
from hostkit.inventory.models import Inventory
from hostkit.transport.connections import Connections
from hostkit.transport.programs.run import run_program

Method = Literal["auto", "weights", "full"]

FOLDERS = ("sharded", "huggingface", "dcp")
WORTH = 0.8  # a selection that is a larger part of the file than this saves next to nothing,
LEAST = 16 << 20  # and so does one that leaves fewer bytes behind
WHOLE = "the whole checkpoint; an interrupted copy can resume"
MODEL_FILES = (".json", ".txt", ".model", ".jinja", ".index.json")
BUDGET = 300.0  # seconds to lay out a selection, beside what reading for it takes
SLOW = 30 << 20  # bytes a second that a busy disk still reads


@dataclass(frozen=True)
class Chosen:
    """The method, why, and what comes by it."""

    method: str
    why: str
    files: tuple[File, ...]
    selection: dict[str, Any] | None = None
    refused: str | None = None


def choose_method(
    connections: Connections,
    inventory: Inventory,
    source: str,
    contents: Contents,
    layout: Layout,
    *,
    method: Method,
    own_harness: bool = False,
    rate: int | None = None,
) -> Chosen:
    """Return how the checkpoint comes. One more look at the source, where a selection is worth it.

    `own_harness`: somebody's own reads it, and what that needs is known only from declared `weights`.
    """
    full = Chosen("full", WHOLE, contents.files)
    if own_harness and not layout.weights and method == "auto":
        return Chosen(
            "full", f"{WHOLE} (`weights:` does not declare what your own harness needs)", contents.files
        )
    if method == "full" or not contents.complete:
        return full
    if contents.format in ("sharded", "huggingface"):
        mine = tuple(file for file in contents.files if _of_model(contents, file))
        left = sum(file.size for file in contents.files) - sum(file.size for file in mine)
        if not mine or not left:
            return full
        return Chosen("weights", f"the model's files, without {left} bytes of training state", mine)
    key, tensors = weights_of(contents, layout)
    keys = list(layout.weights) or ([key] if key else [])
    brought = bool(key) and not own_harness and foreign(str(key), layout)  # to where the harness looks
    why = _not_worth(contents, [one for _, one in tensors]) if method == "auto" and not brought else None
    named = contents.format == "safetensors" and layout.weights and not brought
    if contents.format != "torch-zip" and not named:
        why = f"tensors cannot be extracted from {contents.format}"
    elif not keys:
        why = "the weights have no key of their own"
    if why is None:
        request = {"path": contents.path, "keys": keys, "harness": not own_harness}
        request |= layout.request() | {"rate": rate, "step_inside": contents.step}
        # what has no CRC is read and summed for the layout
        budget = BUDGET + (contents.size or 0) / min(rate or SLOW, SLOW)
        host = inventory.hosts[source]
        plan = run_program(
            connections.transport(source),
            host.python,
            "plan_subset",
            request,
            timeout=budget,
            retry=True,
        )
        if plan.get("code") is None:
            part = f"{plan['size'] / contents.size:.0%}" if contents.size else "all"
            why = f"only {', '.join(plan['kept'])}: {part} of the file leaves {source}"
            return Chosen("weights", why, contents.files, selection=plan)
        why = str(plan.get("reason"))
    if method == "weights":
        return Chosen("weights", "as requested", contents.files, refused=why)
    return Chosen("full", f"{WHOLE} ({why})", contents.files)


def _not_worth(contents: Contents, tensors: list[TensorFacts]) -> str | None:
    wanted = sum({one.storage: one.bytes for one in tensors}.values())
    if contents.size and (wanted > WORTH * contents.size or contents.size - wanted < LEAST):
        return "nearly all of it is weights"
    return None


def _of_model(contents: Contents, file: File) -> bool:
    # by the tensors alone, shards would be lost of a model with more tensors than are told
    shards = {*contents.parts, *(tensor.storage.partition(":")[0] for tensor in contents.tensors)}
    return file.name in shards or ("/" not in file.name and file.name.endswith(MODEL_FILES))
