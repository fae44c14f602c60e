"""The commands as tasks in one Invoke collection, for who types `invoke` in a checkout."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from invoke.collection import Collection
from invoke.exceptions import Exit
from invoke.tasks import Task

from hostkit.tasks.catalogue import commands
from hostkit.tasks.command import Command


class HostkitTask(Task[Any]):
    """A command as Invoke's task: its flags by name, with the short flags that hostkit gives them."""

    def __init__(self, command: Command) -> None:
        flags = command.flags + command.shared
        self.shorts = {flag.name: flag.short for flag in flags if flag.short}

        def body(_context: object, **values: Any) -> None:
            code = command(**values)
            if code:
                raise Exit(code=code)

        keyword, empty = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
        body.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter("_context", inspect.Parameter.POSITIONAL_OR_KEYWORD),
                *(
                    inspect.Parameter(flag.name, keyword, default=empty if flag.required else flag.default)
                    for flag in flags
                ),
            ]
        )
        body.__doc__, body.__name__ = command.doc, command.function.__name__
        texts = {flag.name.replace("_", "-"): flag.help for flag in flags}
        super().__init__(body, name=command.name, auto_shortflags=False, help=texts)

    def arg_opts(self, name: str, default: Any, taken_names: set[str]) -> dict[str, Any]:
        options = super().arg_opts(name, default, taken_names)
        if name in self.shorts:
            options["names"].append(self.shorts[name])
        return options


def collection(members: Mapping[str, Command]) -> Collection:
    """Return the commands as an Invoke collection."""
    made = Collection()
    for command in members.values():
        made.add_task(HostkitTask(command))
    return made


namespace = collection(commands)
