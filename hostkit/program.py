"""The command line `hostkit`: which command, which flags; a wrong one exits with 64, Ctrl-C with 130.

Shared flags may stand before the command, and a run or a job be named by a bare word. Invoke is imported for
shell completion alone: parsing with argparse leaves the first words of a command free of it.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NoReturn

from hostkit import __version__
from hostkit.errors import CannotCreateError, UsageError
from hostkit.tasks.command import DRY_RUN, SHARED, Command, Flag, tell
from hostkit.tasks.streams import harden_streams, silence_stdout

INTERRUPTED = 130
_COMPLETION = ("--complete", "--print-completion-script")  # Invoke's
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_GONE = {
    "--yes": "no command asks before it acts, so leave it out",
    "--dry": "commands that act have --dry-run",
}


def run(argv: list[str], commands: Mapping[str, Command]) -> int:
    """Carry out a command line (without the program's own name), and return its exit code."""
    harden_streams()
    try:
        if argv and argv[0].startswith(_COMPLETION):
            return _complete(argv, commands)
        try:
            name, rest = split(argv, commands)
            if name is None:
                return _without_command(rest, commands)
            if "-h" in rest or "--help" in rest:
                from hostkit.help import task_help

                _print(task_help(commands[name]))
                return 0
            return commands[name](**parse(commands[name], rest))
        except UsageError as error:
            return _refuse(error, argv)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a list or a help text has gone: `hostkit --list | head`
        silence_stdout()
        return 0
    except OSError as error:  # a full disk under it
        silence_stdout()
        return tell(CannotCreateError(f"the text cannot be written: {error.strerror}"), as_json=False)


def split(argv: list[str], commands: Mapping[str, Command]) -> tuple[str | None, list[str]]:
    """Return the command, and the flags before and after it. Raises UsageError for a command that there is not."""
    valued = [flag for flag in SHARED if flag.kind is not bool]
    shorts = "".join(flag.short for flag in valued if flag.short)
    takes_next = re.compile(rf"{'|'.join(flag.long for flag in valued)}|-[^-{shorts}]*[{shorts}]")
    index = 0
    while index < len(argv) and (argv[index].startswith("-") or not argv[index]):
        index += 2 if takes_next.fullmatch(argv[index]) else 1
    if index >= len(argv):
        return None, argv
    name = argv[index]
    if name not in commands:
        near = get_close_matches(name, list(commands), 1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"no command is called {name!r}", hint=f"{meant}hostkit --list names the commands")
    return name, argv[:index] + argv[index + 1 :]


def parse(command: Command, argv: list[str]) -> dict[str, Any]:
    """Return each flag's value by its Python name. Raises UsageError."""
    flags = command.flags + command.shared
    parser = _Parser(add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    for flag in flags:
        if flag.kind is not bool:
            kind = _whole if flag.kind is int else str
            parser.add_argument(*_forms(flag), dest=flag.name, type=kind)
        else:
            parser.add_argument(*_forms(flag), dest=flag.name, action="store_true")
            if flag.default:
                parser.add_argument(f"--no-{flag.long[2:]}", dest=flag.name, action="store_false")
    parser.add_argument("words", nargs="*")
    try:
        known, unknown = parser.parse_known_intermixed_args(argv)
    except argparse.ArgumentError as error:
        raise UsageError(str(error)) from error
    values = vars(known)
    words = values.pop("words", [])
    if unknown:
        raise _unknown(command, unknown[0])
    free = [name for name in command.positional if name not in values]
    if len(words) > len(free):
        raise UsageError(f"unexpected argument {words[len(free)]!r}", hint=_see(command))
    values |= dict(zip(free, words, strict=False))
    missing = [flag.long for flag in flags if flag.required and flag.name not in values]
    if missing:
        raise UsageError(f"missing: {', '.join(missing)}", hint=_see(command))
    return {flag.name: values.get(flag.name, flag.default) for flag in flags}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message.removeprefix("argument "))


def _unknown(command: Command, word: str) -> UsageError:
    name = word.partition("=")[0]
    flags = [flag.long for flag in command.flags + command.shared]
    near = get_close_matches(name, flags, 1)
    hint = _GONE.get(name) or (f"did you mean {near[0]}?" if near else _see(command))
    if name == DRY_RUN.long:
        hint = "it changes nothing on a host"
    return UsageError(f"{command.name} has no flag {name}", hint=hint)


def _forms(flag: Flag) -> list[str]:
    return [flag.long] if flag.short is None else [f"-{flag.short}", flag.long]


def _whole(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number")
    return int(text)


def _see(command: Command) -> str:
    return f"hostkit {command.name} --help shows what it takes"


def _without_command(flags: list[str], commands: Mapping[str, Command]) -> int:
    from hostkit.help import general_help, listing

    if {"-V", "--version"} & set(flags):
        _print(f"hostkit {__version__}")
    elif {"-l", "--list"} & set(flags):
        _print(listing(commands))
    elif not flags or {"-h", "--help"} & set(flags):
        _print(general_help(commands))
    else:
        raise UsageError(
            f"no command, only {flags[0]}",
            hint=_GONE.get(flags[0], "hostkit --list names the commands"),
        )
    return 0


def _refuse(error: UsageError, argv: list[str]) -> int:
    """Say what is wrong with the command line, as a document where one is asked for, and return the exit code."""
    return tell(
        error,
        as_json=any(word == "--json" or re.fullmatch("-[a-z]*j[a-z]*", word) for word in argv),
    )


def _print(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def _complete(argv: list[str], commands: Mapping[str, Command]) -> int:
    from invoke.program import Program

    from hostkit.tasks.namespace import collection

    program = Program(namespace=collection(commands), name="hostkit", binary="hostkit", version=__version__)
    program.run(["hostkit", *argv])
    return 0
