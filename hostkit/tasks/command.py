"""A command: one function that returns an Outcome, wrapped as an Invoke task with the flags that all share.

A command's exit code, its `--json` document and its errors come about here and nowhere else. Nothing
heavy is imported before a command runs, so that `invoke --list` stays as quick as Invoke itself.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invoke.exceptions import Exit
from invoke.tasks import Task

from hostkit.errors import CannotCreateError, HostkitError, Interrupted, UsageError
from hostkit.sanitize import harmless
from hostkit.strictjson import dumps
from hostkit.tasks.streams import mend, silence_stdout

if TYPE_CHECKING:
    from rich.console import Console

    from hostkit.inventory import Inventory
    from hostkit.transport.connections import Connections

_SHARED = {
    "json": (False, "print one JSON document on stdout; progress and logs go to stderr"),
    "quiet": (False, "no progress, and no text when all is well"),
    "inventory": (
        None,
        "inventory file (default: $HOSTKIT_INVENTORY, ./inventory/fleet.yaml, your config directory)",
    ),
    "here": (None, "inventory name of the host that this machine is; routes through it get shorter"),
    "timeout": (None, "budget of the whole command, such as 30s or 2m"),
    "debug": (False, "show where an error came from"),
}
_ACTING = {
    "dry_run": (False, "print the plan and touch nothing"),
    "yes": (False, "changes nothing here: no command asks before it acts"),
}


@dataclass(frozen=True)
class Outcome:
    """What a command found: its document, its exit code, and how to show it to a person."""

    document: dict[str, Any]
    exit: int = 0
    render: Callable[[Console], None] | None = None


class Session:
    """One command's flags, and the inventory and connections that it opens when it needs them."""

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
        """Return the evaluation that is meant: the one named, else the only one."""
        return _choose("eval", name, list(self.inventory.evals), self.inventory_path)

    def say(self, text: str) -> None:
        """Tell the person waiting what goes on, on stderr."""
        if not self.quiet and sys.stderr is not None:
            print(harmless(text), file=sys.stderr, flush=True)  # noqa: T201

    def close(self) -> None:
        if "connections" in self.__dict__:
            self.connections.close()


def command(
    name: str, *, help: dict[str, str] | None = None, acts: bool = False, multiplexed: bool = False
) -> Callable[[Callable[..., Outcome]], Task[Any]]:
    """Make an Invoke task of a function `(session, ...) -> Outcome`. `acts`: it takes --dry-run and --yes.

    `multiplexed`: it asks a host more than once, see `Connections`.
    """
    shared = _SHARED | (_ACTING if acts else {})

    def wrap(function: Callable[..., Outcome]) -> Task[Any]:
        own = list(inspect.signature(function).parameters.values())[1:]

        def body(_context: object, **values: Any) -> None:
            flags = {key: values.pop(key) for key in shared}
            code = _perform(function, flags, values, multiplexed)
            if code:
                raise Exit(code=code)

        keyword = inspect.Parameter.KEYWORD_ONLY
        body.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter("_context", inspect.Parameter.POSITIONAL_OR_KEYWORD),
                *(parameter.replace(kind=keyword) for parameter in own),
                *(inspect.Parameter(key, keyword, default=default) for key, (default, _) in shared.items()),
            ]
        )
        body.__doc__ = function.__doc__
        body.__name__ = function.__name__
        texts = {key: text for key, (_, text) in shared.items()} | (help or {})
        return Task(
            body, name=name, auto_shortflags=False, help={k.replace("_", "-"): v for k, v in texts.items()}
        )

    return wrap


def _perform(
    function: Callable[..., Outcome], flags: dict[str, Any], values: dict[str, Any], multiplexed: bool
) -> int:
    mend()
    outcome: Outcome | None = None
    try:
        session = Session(flags, multiplexed)
        try:
            outcome = function(session, **values)
        finally:
            session.close()
        try:
            _show(session, outcome)
        except (BrokenPipeError, HostkitError):
            raise
        except OSError as error:
            silence_stdout()  # what it still holds would fail once more when Python ends
            raise CannotCreateError(
                f"the answer cannot be written: {error.strerror}",
                where="standard output",
                hint="free some space, or write it elsewhere; the command itself was carried out",
            ) from error
    except BrokenPipeError:  # the reader of our output has gone: `hostkit … | head`
        silence_stdout()
        return outcome.exit if outcome is not None else 0
    except KeyboardInterrupt:
        return _fail(Interrupted("interrupted", hint="the same command again goes on where it can"), flags)
    except HostkitError as error:
        return _fail(error, flags)
    except Exception as error:
        if flags["debug"]:
            raise
        where = f"{type(error).__name__} in {_origin(error)}"
        return _fail(
            HostkitError(
                str(error) or "no message", where=where, hint="a fault of hostkit's own; --debug shows more"
            ),
            flags,
        )
    return outcome.exit


def _show(session: Session, outcome: Outcome) -> None:
    if session.json:
        print_document(outcome.document)
    elif outcome.render is not None and not (session.quiet and outcome.exit == 0):
        from hostkit.report.console import console

        outcome.render(console())
    sys.stdout.flush()


def _fail(error: HostkitError, flags: dict[str, Any]) -> int:
    if flags["debug"]:
        import traceback

        traceback.print_exception(error)
    if flags["json"]:
        print_document(error.document())
    else:
        print(f"hostkit: {harmless(str(error))}", file=sys.stderr)  # noqa: T201
    return error.exit_code


def print_document(document: dict[str, Any]) -> None:
    """Print JSON that stays JSON in every locale: what stdout cannot encode is spelt as JSON spells it."""
    text = dumps(document)
    encoding = sys.stdout.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = "".join(one if one.isascii() else json.dumps(one)[1:-1] for one in text)
    print(text)  # noqa: T201


def _origin(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return (
        f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
        if trace is not None
        else "hostkit"
    )


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
