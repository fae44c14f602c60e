"""Which bytes of each storage the tensors of a selection view: a small view on a large storage need not bring it all.

Travels to hosts: standard library only, Python 3.8 or newer. Pure: reads no file.

torch saves a view with the whole of its storage. Trimmed, the storage becomes the one stretch that holds all views of
it, and every view keeps its shape, its strides, and what it shares with others; only its offset moves.
"""

from __future__ import annotations

from typing import Any

from checkpoint.contents import ITEM, Storage, tensor
from checkpoint.pickle_reader import Call, Dict, Global, Persistent, Set

ALIGNMENT = (
    64  # of a stretch's first byte, so that data lies in memory as it did; any element's size divides it
)
MAKERS = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3")


def cuts(root: Any) -> dict[str, tuple[int, int]]:
    """Return what stays of each storage of which less than all is viewed."""
    viewed: dict[str, tuple[int, int]] = {}
    whole: set[str] = set()
    sizes: dict[str, int] = {}
    todo, seen = [root], {id(root)}
    held = []  # what is only known by its id() has to live
    while todo:
        value = todo.pop()
        held.append(value)
        below: list[Any] = []
        if isinstance(value, Persistent):
            whole.add(Storage(value.reference).key)  # referred to by something that is no plain tensor
        elif isinstance(value, Dict):
            below = [one for pair in value.pairs for one in pair]
        elif isinstance(value, dict):
            below = list(value.values())
        elif isinstance(value, (list, tuple)):
            below = list(value)
        elif isinstance(value, Set):
            below = list(value.items)
        elif isinstance(value, Call):
            below = [value.args, value.state, *value.items, *(one for pair in value.pairs for one in pair)]
            if plain(value):
                key, size, stretch = _stretch(value)
                sizes[key] = size
                if stretch is not None:
                    first, end = viewed.get(key, stretch)
                    viewed[key] = (min(first, stretch[0]), max(end, stretch[1]))
                below = [*value.args[1:], value.state]
        for one in below:
            if isinstance(one, (Dict, dict, list, tuple, Set, Call, Persistent)) and id(one) not in seen:
                seen.add(id(one))
                todo.append(one)
    found = {}
    for key, size in sizes.items():
        first, end = viewed.get(key, (0, 0))
        first -= first % ALIGNMENT
        if key not in whole and end - first < size and end <= size:
            found[key] = (first, end)
    return found


def plain(value: Any) -> bool:
    """Whether this is a tensor that torch makes of a storage, an offset, a shape and strides, and nothing else."""
    return (
        isinstance(value, Call)
        and isinstance(value.function, Global)
        and value.function.module == "torch._utils"
        and value.function.name in MAKERS
        and isinstance(value.args, tuple)
        and len(value.args) >= 4
        and isinstance(value.args[0], Persistent)
        and tensor(value) is not None
    )


def moved(value: Call, cut: dict[str, tuple[int, int]]) -> Any:
    """Return a tensor's arguments with its offset counted from where its storage now begins."""
    if not plain(value):
        return value.args
    found = tensor(value)
    if found is None or found["storage"] not in cut:
        return value.args
    first, end = cut[found["storage"]]
    item = ITEM[found["dtype"]]
    offset = min(max(found["offset"] * item, first), end) - first  # an empty view may lie anywhere
    return (value.args[0], offset // item, *value.args[2:])


def _stretch(value: Call) -> tuple[str, int, tuple[int, int] | None]:
    """Return the storage's key and size, and the bytes that a tensor views of it; None where it is empty."""
    found = tensor(value)
    assert found is not None
    item, first = ITEM[found["dtype"]], found["offset"] * ITEM[found["dtype"]]
    reach = sum((size - 1) * stride for size, stride in zip(found["shape"], found["stride"]))  # noqa: B905
    seen = None if 0 in found["shape"] else (first, first + (reach + 1) * item)
    return found["storage"], found["storage_bytes"], seen
