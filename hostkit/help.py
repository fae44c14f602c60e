"""The help texts of the command line: of all commands, and of one (pure)."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping

from hostkit.tasks.command import SHARED, Command, Flag

_VALUES = {
    "eval": "NAME",
    "here": "HOST",
    "inventory": "FILE",
    "job": "ID",
    "run": "NAME",
    "timeout": "TIME",
    "to": "HOST",
}
_GENERAL = (
    ("-h, --help", "show this, or a command's help"),
    ("-l, --list", "list the commands"),
    ("-V, --version", "show the version"),
)


def general_help(commands: Mapping[str, Command]) -> str:
    """Return how the command line is made up, the commands, and the flags that all of them take."""
    flags = [(_forms(flag), flag.help) for flag in SHARED]
    return "\n".join(
        [
            "Usage: hostkit COMMAND [FLAGS]",
            "",
            listing(commands),
            "",
            "Flags of every command:",
            _columns(flags),
            "",
            "Other flags:",
            _columns(list(_GENERAL)),
            "",
            "hostkit COMMAND --help shows a command's own flags and examples.",
        ]
    )


def listing(commands: Mapping[str, Command]) -> str:
    """Return the commands with what each does."""
    return "Commands:\n" + _columns([(name, command.summary) for name, command in commands.items()])


def task_help(command: Command) -> str:
    """Return a command's help: usage, what it does, its flags, the shared flags, examples."""
    required = {flag.name for flag in command.flags if flag.required}
    words = [name.upper() if name in required else f"[{name.upper()}]" for name in command.positional]
    parts = [" ".join(["Usage: hostkit", command.name, *words, "[FLAGS]"]), "", command.doc, ""]
    own = [(_forms(flag, command.positional), flag.help) for flag in command.flags]
    shared = [flag for flag in command.shared if flag not in SHARED]
    own += [(_forms(flag), flag.help) for flag in shared]
    if own:
        parts += ["Flags:", _columns(own), ""]
    parts += ["Flags of every command:", _columns([(_forms(flag), flag.help) for flag in SHARED]), ""]
    parts += ["Examples:", *(f"  hostkit {example}" for example in command.examples)]
    return "\n".join(parts)


def _forms(flag: Flag, positional: tuple[str, ...] = ()) -> str:
    long = flag.long if flag.default is not True else f"--no-{flag.long[2:]}"
    short = f"-{flag.short}, " if flag.short else ""
    if flag.kind is bool:
        return short + long
    bare = f"{flag.name.upper()}, " if flag.name in positional else ""
    return f"{bare}{short}{long} {'N' if flag.kind is int else _VALUES.get(flag.name, flag.name.upper())}"


def _columns(rows: list[tuple[str, str]]) -> str:
    """Return two columns; the second is wrapped to the terminal's width."""
    left = min(max(len(first) for first, _ in rows), 28) + 2
    width = max(shutil.get_terminal_size((100, 24)).columns - left - 2, 30)
    lines = []
    for first, second in rows:
        wrapped = textwrap.wrap(second, width) or [""]
        head = f"  {first:<{left}}"
        if len(first) > left - 2:
            lines.append(f"  {first}")
            head = " " * (left + 2)
        lines.append((head + wrapped[0]).rstrip())
        lines += [" " * (left + 2) + line for line in wrapped[1:]]
    return "\n".join(lines)
