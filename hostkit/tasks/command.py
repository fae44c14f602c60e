"""A command: one function that returns an Outcome, with its flags, its help and the flags that all share.

A command's exit code, its `--json` document and its errors come about here and nowhere else. Nothing
heavy is imported before a command runs, Invoke included: its first words are on the terminal at once.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hostkit.errors import CannotCreateError, HostkitError, Interrupted
from hostkit.sanitize import sanitize
from hostkit.strictjson import dumps
from hostkit.tasks.session import Session
from hostkit.tasks.streams import harden_streams, reader_gone, silence_stdout

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Command", "Flag", "Outcome", "Session", "command", "print_document", "tell"]


@dataclass(frozen=True)
class Outcome:
    """What a command found: its document, its exit code, and how to show it to a person."""

    document: dict[str, Any]
    exit: int = 0
    render: Callable[[Console], None] | None = None


@dataclass(frozen=True)
class Flag:
    """One flag. Its kind (bool, int, str) is that of its default; a flag without a default is required."""

    name: str  # as a Python name: dry_run is --dry-run
    help: str
    default: Any = None
    short: str | None = None
    required: bool = False

    @property
    def kind(self) -> type:
        return str if self.default is None else type(self.default)

    @property
    def long(self) -> str:
        return "--" + self.name.replace("_", "-")


SHARED = (
    Flag("json", "print one JSON document on stdout; progress and logs go to stderr", False, "j"),
    Flag("quiet", "no progress, and no text when all is well", False, "q"),
    Flag(
        "inventory",
        "inventory file (default: $HOSTKIT_INVENTORY, ./inventory/fleet.yaml, your config directory)",
        short="i",
    ),
    Flag("here", "inventory name of the host that this machine is; routes through it get shorter"),
    Flag("timeout", "time limit of the whole command, such as 30s or 2m", short="t"),
    Flag("debug", "show a traceback with an error", False),
)
DRY_RUN = Flag("dry_run", "print the plan and change nothing", False, "n")


@dataclass(frozen=True)
class Command:
    """A command: what it is called, what it takes, and the function that carries it out."""

    name: str
    function: Callable[..., Outcome]
    flags: tuple[Flag, ...]  # its own; then those that commands share
    shared: tuple[Flag, ...]
    positional: tuple[str, ...]  # names of flags that may be given as a bare word too
    examples: tuple[str, ...]
    multiplexed: bool

    @property
    def doc(self) -> str:
        return inspect.getdoc(self.function) or ""

    @property
    def summary(self) -> str:
        return self.doc.partition("\n")[0]

    def __call__(self, **values: Any) -> int:
        """Carry it out, print its answer, and return its exit code. `values`: each flag by its Python name."""
        shared = {flag.name: values.pop(flag.name) for flag in self.shared}
        return _perform(self.function, shared, values, self.multiplexed)


def command(
    name: str,
    *,
    help: dict[str, str] | None = None,
    positional: tuple[str, ...] = (),
    examples: tuple[str, ...] = (),
    acts: bool = False,
    multiplexed: bool = False,
) -> Callable[[Callable[..., Outcome]], Command]:
    """Make a command of a function `(session, ...) -> Outcome`. `acts`: it takes --dry-run.

    `help`: a text for each flag, and for shared flags of its own such as `yes`. `positional`: flags that may be
    given as a bare word; required ones always may. `examples`: command lines without the leading `hostkit`.
    `multiplexed`: it asks a host more than once, see `Connections`.
    """
    texts = dict(help or {})

    def wrap(function: Callable[..., Outcome]) -> Command:
        flags = []
        for parameter in list(inspect.signature(function).parameters.values())[1:]:
            required = parameter.default is inspect.Parameter.empty
            default = None if required else parameter.default
            flags.append(Flag(parameter.name, texts.pop(parameter.name), default, required=required))
        own = tuple(
            Flag(key, text, False, key[0]) for key, text in texts.items()
        )  # `yes`, read by the session
        required_names = tuple(flag.name for flag in flags if flag.required)
        return Command(
            name=name,
            function=function,
            flags=tuple(flags),
            shared=own + ((DRY_RUN,) if acts else ()) + SHARED,
            positional=required_names + positional,
            examples=examples,
            multiplexed=multiplexed,
        )

    return wrap


def _perform(
    function: Callable[..., Outcome], flags: dict[str, Any], values: dict[str, Any], multiplexed: bool
) -> int:
    harden_streams()
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
    except KeyboardInterrupt:
        return _fail(Interrupted("interrupted", hint="run the same command to resume"), flags)
    except HostkitError as error:
        return _fail(error, flags)
    except Exception as error:  # noqa: BLE001  (told as an internal error, with its exit code)
        if isinstance(error, BrokenPipeError) and reader_gone():  # of our own output: `hostkit … | head`
            silence_stdout()
            return outcome.exit if outcome is not None else 0
        where = f"{type(error).__name__} in {_origin(error)}"
        hint = "internal error; please report it" + ("" if flags["debug"] else " (--debug shows a traceback)")
        internal = HostkitError(str(error) or "no message", where=where, hint=hint)
        internal.__cause__ = error
        return _fail(internal, flags)
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
    return tell(error, as_json=flags["json"])


def tell(error: HostkitError, *, as_json: bool) -> int:
    """Tell an error, and return its exit code, which stands also where nobody can read what was told."""
    try:
        if as_json:
            print_document(error.document())
            sys.stdout.flush()
        else:
            print(f"hostkit: {sanitize(str(error))}", file=sys.stderr)  # noqa: T201
    except OSError:  # a full disk, or a reader that has gone
        silence_stdout()
    return error.exit_code


def print_document(document: dict[str, Any]) -> None:
    """Print JSON that stays JSON in every locale: what stdout cannot encode is spelt as JSON spells it."""
    text = dumps(document)
    encoding = sys.stdout.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = "".join(char if char.isascii() else json.dumps(char)[1:-1] for char in text)
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
