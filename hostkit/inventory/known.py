"""Which keys the format knows at a path, and which of them somebody meant by another word."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from difflib import SequenceMatcher
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from hostkit.inventory.faults import Path
from hostkit.inventory.models import Inventory

_CLOSE = 0.58  # of difflib's ratio; below it two words have nothing to do with each other
_WORDS = {  # what other tools call it
    "host_name": "address", "hostname": "address", "ip": "address", "addr": "address", "ansible_host": "address",
    "ssh_host": "address", "username": "user", "login_user": "user", "remote_user": "user", "key": "identity",
    "identity_file": "identity", "identityfile": "identity", "key_filename": "identity", "jump": "via",
    "jump_host": "via", "proxy": "via", "proxyjump": "via", "proxy_jump": "via", "gateway": "via", "bastion": "via",
    "vmid": "pct", "ctid": "pct", "ct": "pct", "container": "pct", "lxc": "pct", "localhost": "local",
    "config": "ssh_config", "interpreter": "python", "become_user": "sudo", "become": "sudo", "steps": "total_steps",
    "max_steps": "total_steps", "num_steps": "total_steps", "gpu": "gpus", "devices": "gpus", "cmd": "command",
    "argv": "args", "workdir": "cwd", "directory": "root", "dir": "root", "interval": "every", "ram": "memory",
    "keep_last": "keep", "save_total_limit": "keep", "retain": "keep", "retention": "keep", "prefix": "strip",
    "prefixes": "strip", "keys": "weights", "state_dict": "weights", "step_key": "step",
    "mem": "memory", "timeout": "timeouts", "version": "hostkit", "base_url": "api", "url": "api",
}  # fmt: skip


def model_at(path: Path) -> type[BaseModel] | None:
    """Return the model of the mapping at path, or None where the format has no fixed keys."""
    found = _inside(_annotation(path))
    return found if isinstance(found, type) and issubclass(found, BaseModel) else None


def example_at(path: Path) -> Any:
    """Return a value that may stand at path, or None."""
    if path and isinstance(path[-1], str) and (model := model_at(path[:-1])):
        field = model.model_fields.get(path[-1])
        if field and field.examples:
            return field.examples[0]
    entries = example_at(path[:-1]) if len(path) > 1 and model_at(path[:-1]) is None else None
    if isinstance(entries, dict | list) and entries:
        return next(iter(entries.values() if isinstance(entries, dict) else entries))
    return None


def suggestion(key: str, path: Path) -> str:
    """Return what to write instead of an unknown key in the mapping at path."""
    model = model_at(path)
    if model is None:
        return "remove it"
    here = list(model.model_fields)
    plain = key.strip().lower().replace("-", "_").replace(" ", "_")
    if plain in here:
        return f"did you mean {plain}?"
    if (word := _WORDS.get(plain)) in here:
        return f"did you mean {word}?"
    nested = {f"{outer}.{inner}": inner for outer in here for inner in _keys(model_at((*path, outer)))}
    near = _nearest(plain, {name: name for name in here})
    deep = _nearest(plain, nested)
    if best := max(near, deep)[1]:
        return f"did you mean {best}?"
    elsewhere = [place for place, keys in _everywhere() if plain in keys]
    known = f"known here: {', '.join(here)}"
    return f"it belongs in {elsewhere[0]}; {known}" if elsewhere else known


def _nearest(word: str, names: dict[str, str]) -> tuple[float, str]:
    """Return how near the nearest of names is, and its full name; an empty one where none is near."""
    best = max(
        ((SequenceMatcher(None, word, name).ratio(), full) for full, name in names.items()), default=(0.0, "")
    )
    return best if best[0] >= _CLOSE else (0.0, "")


def _keys(model: type[BaseModel] | None) -> list[str]:
    return list(model.model_fields) if model else []


def _everywhere() -> Iterator[tuple[str, list[str]]]:
    """Yield each place of the format, in words, with the keys known there."""
    yield "the top level", _keys(Inventory)
    for group in ("hosts", "runs", "evals"):
        entry = model_at((group, "x"))
        yield f"{group}.NAME", _keys(entry)
        for key in _keys(entry):
            if inner := _keys(model_at((group, "x", key))):
                yield f"{group}.NAME.{key}", inner


def _annotation(path: Path) -> Any:
    current: Any = Inventory
    for part in path:
        current = _inside(current)
        if isinstance(current, type) and issubclass(current, BaseModel):
            field = current.model_fields.get(str(part))
            if field is None:
                return None
            current = field.annotation
        elif get_origin(current) is dict:
            current = get_args(current)[1]
        elif get_origin(current) is list:
            current = get_args(current)[0]
        else:
            return None
    return current


def _inside(annotation: Any) -> Any:
    """Return a type without Annotated and Optional; of a union, the part with keys."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):
        parts = [_inside(part) for part in get_args(annotation) if part is not type(None)]
        models = [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]
        return (models or parts)[0]
    return annotation


def kind_at(path: Path) -> str:
    """Return in words what belongs at path: a mapping, a list, a text, a whole number, a choice."""
    inside = _inside(_annotation(path))
    origin = get_origin(inside) or inside
    if origin is dict or (isinstance(origin, type) and issubclass(origin, BaseModel)):
        return "a mapping"
    if origin is typing.Literal:
        return " or ".join(str(choice).lower() for choice in get_args(inside))
    return {
        list: "a list",
        str: "a text",
        int: "a whole number",
        bool: "true or false",
        float: "a duration",
    }.get(origin, "another value")
