"""The inventory: which hosts there are, how each is reached, which runs are watched, what is evaluated.

`load()` reads and checks the file, `find()` says which file that is. Importing this package costs nothing:
pydantic and PyYAML are imported by the first name that needs them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hostkit.inventory.loading import load
    from hostkit.inventory.models import Eval, Host, Inventory, Run
    from hostkit.inventory.search import find

__all__ = ["Eval", "Host", "Inventory", "Run", "find", "load"]

_HOMES = {
    "Eval": "models",
    "Host": "models",
    "Inventory": "models",
    "Run": "models",
    "find": "search",
    "load": "loading",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
