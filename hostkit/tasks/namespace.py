"""All tasks in one Invoke collection."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from invoke.collection import Collection

_MODULES = ("train", "evals", "checkpoints", "jobs", "inventory", "trust", "practice")

namespace = Collection()
for _module in _MODULES:
    if find_spec(f"hostkit.tasks.{_module}") is None:
        continue
    for _task in import_module(f"hostkit.tasks.{_module}").TASKS:
        namespace.add_task(_task)
