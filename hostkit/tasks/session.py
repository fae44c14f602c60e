"""What a command works with: its shared flags, and the inventory and connections that it opens when it needs them."""

from __future__ import annotations

import sys
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hostkit.errors import UsageError
from hostkit.sanitize import sanitize

if TYPE_CHECKING:
    from hostkit.inventory import Inventory
    from hostkit.transport.connections import Connections


class Session:
    """One command's shared flags, its inventory and its connections."""

    def __init__(self, flags: dict[str, Any], multiplexed: bool = False) -> None:
        self.multiplexed = multiplexed
        self.json: bool = flags["json"]
        self.quiet: bool = flags["quiet"]
        self.debug: bool = flags["debug"]
        self.here: str | None = flags["here"]
        self.dry_run: bool = flags.get("dry_run", False)
        self.yes: bool = flags.get("yes", False)
        self.timeout: float | None = _seconds(flags["timeout"])
        self._inventory_flag: str | None = flags["inventory"]
        if self._inventory_flag == "":  # an unset variable of a script must not mean the default
            raise UsageError("--inventory: the file name is empty", hint="leave the flag out for the default")

    @property
    def inventory_named(self) -> bool:
        """Whether --inventory was given."""
        return self._inventory_flag is not None

    @cached_property
    def inventory_path(self) -> Path:
        from hostkit.inventory import find

        return find(Path(self._inventory_flag) if self._inventory_flag else None)

    @cached_property
    def inventory(self) -> Inventory:
        from hostkit.inventory import load

        return load(self.inventory_path)

    @cached_property
    def connections(self) -> Connections:
        from hostkit.transport.connections import Connections

        if self.here is not None and self.here not in self.inventory.hosts:
            raise UsageError(
                f"--here {self.here}: no host of that name",
                where=str(self.inventory_path),
                hint="hosts: " + ", ".join(self.inventory.hosts),
            )
        return Connections(self.inventory, here=self.here, timeout=self.timeout, multiplexed=self.multiplexed)

    def choose_run(self, name: str | None) -> str:
        """Return the run that is meant: the one named, else the only one."""
        return _choose("run", name, list(self.inventory.runs), self.inventory_path)

    def choose_eval(self, name: str | None) -> str:
        """Return the evaluation that is meant: the one named (or the only one of the run named), else the only one."""
        evals = self.inventory.evals
        if name is not None and name not in evals:
            of_run = [key for key, evaluation in evals.items() if evaluation.run == name]
            name = of_run[0] if len(of_run) == 1 else name
        return _choose("eval", name, list(self.inventory.evals), self.inventory_path)

    def say(self, text: str) -> None:
        """Tell the person waiting what goes on, on stderr."""
        if not self.quiet and sys.stderr is not None:
            print(sanitize(text), file=sys.stderr, flush=True)  # noqa: T201

    def close(self) -> None:
        if "connections" in self.__dict__:
            self.connections.close()


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    from hostkit.inventory.units import seconds

    try:
        return seconds(text)
    except ValueError as error:
        raise UsageError(f"--timeout: {error}") from error


def _choose(what: str, name: str | None, names: list[str], where: Path) -> str:
    if name is not None:
        if name in names:
            return name
        raise UsageError(
            f"no {what} is called {name!r}",
            where=str(where),
            hint=f"{what}s: " + (", ".join(names) or "none"),
        )
    if len(names) == 1:
        return names[0]
    if not names:
        raise UsageError(f"the inventory has no {what}s", where=str(where), hint=f"add one under `{what}s:`")
    raise UsageError(f"which {what}?", where=str(where), hint=f"--{what} with one of: " + ", ".join(names))
