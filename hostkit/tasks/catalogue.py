"""Every command by its name. A command's module is imported when the command is looked up, and not before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from hostkit.tasks.command import Command

# in the order in which `hostkit --help` lists them
_MODULES = {
    "train-status": "train",
    "checkpoints": "checkpoints",
    "stage": "staging",
    "eval-latest": "evals",
    "job-list": "jobs",
    "job-log": "jobs",
    "job-cancel": "jobs",
    "hosts": "inventory",
    "host-trust": "trust",
    "inventory": "inventory",
    "practice": "practice",
}


class Catalogue(Mapping[str, Command]):
    """The commands; each module lists its own as TASKS."""

    def __getitem__(self, name: str) -> Command:
        tasks: list[Command] = import_module(f"hostkit.tasks.{_MODULES[name]}").TASKS
        return next(command for command in tasks if command.name == name)

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


commands = Catalogue()
