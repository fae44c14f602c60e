"""What a checkpoint holds, of whatever format: top-level keys, tensors, small metadata, the files it is made of.

Travels to hosts: standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import json
import os
import re
import struct
from typing import Any

from checkpoint import completeness, folders, keys, torch_zip
from checkpoint import contents as checkpoint_contents
from checkpoint.pickle_reader import MAX_BYTES
from checkpoint.torch_zip import Archive

TENSORS_TOLD = 20_000
STEP_NAMES = ("step", "global_step", "iteration", "iter", "num_steps", "steps")
CONFIG_CAP = 4 << 20


def files(path: str) -> list[dict[str, Any]]:
    """Return every file of the checkpoint by its path below it, so that the copy can be asked for by name."""
    out = []
    base = path if os.path.isdir(path) else os.path.dirname(path)
    of_index = path.endswith(".index.json") and not os.path.isdir(path)
    for name in [path, *_parts(path)] if of_index else completeness.payload(path):
        try:
            look = os.stat(name)
        except OSError:
            continue
        out.append({"name": os.path.relpath(name, base), "size": look.st_size, "mtime_ns": look.st_mtime_ns})
    return out


class Named:
    """What an inventory says of the layout: where the step stands, whose bytes are told, what wrappers put before."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.step: str | None = request.get("step")
        self.weights: list[str] = list(request.get("names") or [])
        self.strip: tuple[str, ...] = tuple(request.get("strip") or ())


def contents(path: str, form: str, wanted: set[str] | None, named: Named) -> dict[str, Any]:
    """Return step, metadata, globals, the top-level keys, and the tensors below the wanted ones."""
    metadata: dict[str, Any] = {}
    inside: Any = None
    told: dict[str, Any] = {"globals": [], "top": [], "tensors": []}
    if form == "torch-zip":
        with Archive(path) as archive:
            inside = _from_tree(torch_zip.tree(archive), wanted, told, metadata, archive, named)
    elif form == "torch-legacy":
        inside = _from_tree(torch_zip.legacy(path), wanted, told, metadata, None, named)
    elif form == "dcp":
        raw = completeness.read_part(os.path.join(path, ".metadata"), 0, MAX_BYTES + 1)
        tree, _ = checkpoint_contents.load(raw)
        told["globals"] = tree.foreign
        told["top"] = [_entry(key, [], None) for key, _ in tree.top()]
    else:
        inside = _from_safetensors(path, form, wanted, told, metadata, named)
    step = next((metadata[name] for name in STEP_NAMES if name in metadata), None)
    if named.step is not None:
        step = inside
    beside = os.path.join(path if os.path.isdir(path) else os.path.dirname(path), "config.json")
    if "config" not in metadata and os.path.isfile(beside):
        metadata["config"] = _json(beside)
    step = _whole(step)
    left_off = max(0, len(told["tensors"]) - TENSORS_TOLD)
    told["tensors"] = told["tensors"][:TENSORS_TOLD]
    return dict(told, step=step, metadata=metadata, tensors_left_off=left_off)


def _from_tree(
    tree: checkpoint_contents.Tree,
    wanted: set[str] | None,
    told: dict[str, Any],
    metadata: dict[str, Any],
    archive: Archive | None,
    named: Named,
) -> Any:
    """Fill in what is told, and return what stands where the step is said to stand."""
    told["globals"] = tree.foreign
    tensors = []
    for key, value in tree.top():
        found = tree.tensors(value, (key,) if key else ())
        tensors += found if named.weights else []
        plain = None
        if not found:
            plain = metadata[key] = tree.plain(value)
        elif key in STEP_NAMES and len(found) == 1 and archive is not None:
            plain = metadata[key] = _number(archive, found[0])
        told["top"].append(_entry(key, found, plain))
        if wanted is None or key in wanted:
            told["tensors"].extend(found)
    told["named"] = {one: keys.bytes_below(tensors, one, named.strip) for one in named.weights}
    inside = keys.value_at(tree, named.step, named.strip) if named.step is not None else None
    number = checkpoint_contents.tensor(inside)
    if number is not None:
        return _number(archive, number) if archive is not None else None
    return inside


def _from_safetensors(
    path: str,
    form: str,
    wanted: set[str] | None,
    told: dict[str, Any],
    metadata: dict[str, Any],
    named: Named,
) -> Any:
    base = path if os.path.isdir(path) else os.path.dirname(path)
    parts = _parts(path)
    told["parts"] = [os.path.relpath(file, base) for file in parts]
    found: list[dict[str, Any]] = []
    for file, name_of_file in zip(parts, told["parts"]):  # noqa: B905 (3.8 has no strict=)
        kind = "safetensors" if form == "safetensors" else completeness.sniff(file)
        if kind != "safetensors":  # as folders of older transformers hold
            tree = _torch_tree(file, kind)
            told["globals"] = sorted({*told["globals"], *tree.foreign})
            for one in tree.tensors(tree.root):
                storage = name_of_file + ":" + one["storage"]
                found.append(dict(one, path=[".".join(one["path"])], storage=storage))
            continue
        header = completeness.safetensors_header(file)
        for name, entry in header.items():
            if name == "__metadata__":
                metadata.update({str(key): value for key, value in entry.items()})
                continue
            begin, end = entry["data_offsets"]
            dtype = str(entry["dtype"])
            found.append(
                {
                    "path": [name],
                    "shape": entry["shape"],
                    "dtype": _SAFETENSORS.get(dtype, dtype),
                    "bytes": end - begin,
                    "storage": name_of_file + ":" + name,
                    "storage_bytes": end - begin,
                }
            )
    state = os.path.join(path, "trainer_state.json")
    if os.path.isfile(state):
        more = _json(state)
        if isinstance(more, dict) and "global_step" in more:
            metadata.setdefault("global_step", more["global_step"])
    told["top"] = [_entry("", found, None)]
    told["named"] = {one: keys.bytes_below(found, one, named.strip) for one in named.weights}
    told["tensors"] = [
        one for one in found if wanted is None or one["path"][0].split(".")[0] in wanted
    ] or found
    return metadata.get(named.step) if named.step is not None else None


def _parts(path: str) -> list[str]:
    """Return the files that hold the model."""
    if os.path.isdir(path):
        return folders.folder_parts(path)[1]
    return folders.shards(path) if path.endswith(".index.json") else [path]


def _torch_tree(file: str, kind: str | None) -> checkpoint_contents.Tree:
    if kind == "torch-legacy":
        return torch_zip.legacy(file)
    with Archive(file) as archive:
        return torch_zip.tree(archive)


_SAFETENSORS = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64", "BOOL": "bool",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip
_NUMBERS = {
    "int64": "<q",
    "int32": "<i",
    "int16": "<h",
    "float64": "<d",
    "float32": "<f",
    "uint8": "<B",
    "int8": "<b",
}


def _entry(key: str, tensors: list[dict[str, Any]], value: Any) -> dict[str, Any]:
    storages = {one["storage"]: one["storage_bytes"] for one in tensors}
    return {"key": key, "tensors": len(tensors), "bytes": sum(storages.values()), "value": value}


def _number(archive: Archive, found: dict[str, Any]) -> Any:
    """Return the value of a tensor that holds a single number (a step that was saved as one)."""
    form = _NUMBERS.get(found["dtype"])
    if form is None or found["shape"] not in ([], [1]) or found["storage_bytes"] > 4096:
        return None
    data = archive.read(archive.top + "data/" + found["storage"], 4096)
    width = struct.calcsize(form)
    part = data[found["offset"] * width :][:width]
    return struct.unpack(form, part)[0] if len(part) == width else None


def _whole(value: Any) -> int | None:
    """Return a step that is written as a number, a text, or a number with a point."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value == int(value):
        return int(value)
    return int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,18}", value) else None


def _json(path: str) -> Any:
    try:
        return json.loads(completeness.read_part(path, 0, CONFIG_CAP))
    except (ValueError, RecursionError, OSError, completeness.IncompleteError):
        return None
