"""Lay out a smaller checkpoint, in the format of the whole one.

Travels to hosts: standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

from typing import Any

from checkpoint import completeness
from checkpoint.completeness import IncompleteError
from subset.layout import Layout, SelectError, Selection
from subset.safetensors_layout import SafetensorsLayout
from subset.torch_layout import TorchLayout


def lay_out(path: str, keys: list[str] | None, exactly: bool = False, **more: Any) -> Layout:
    """Return the layout for a whole file. Raises SelectError, IncompleteError, PickleError, OSError.

    `more`: what else `Selection` takes.
    """
    seen = completeness.examine(path)
    if not seen["complete"]:
        raise IncompleteError(str(seen["reason"]))
    if seen["format"] == "safetensors":
        return SafetensorsLayout(path, Selection(keys, exactly, **more))
    if seen["format"] != "torch-zip":
        told = "keys can be taken out of torch zip and safetensors files only, not of %s" % seen["format"]
        raise SelectError("layout", told)
    return TorchLayout(path, Selection(keys, exactly, **more))
