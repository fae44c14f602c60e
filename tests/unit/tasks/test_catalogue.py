"""All commands: each under its name, with help and examples that its own parser takes, for hostkit and for Invoke."""

from __future__ import annotations

import pkgutil
import shlex
from importlib import import_module

import pytest

import hostkit.tasks
from hostkit.help import task_help
from hostkit.program import parse, split
from hostkit.tasks.catalogue import commands
from hostkit.tasks.command import Command


def test_the_catalogue_holds_every_command_of_every_module() -> None:
    modules = [
        import_module(f"hostkit.tasks.{one.name}") for one in pkgutil.iter_modules(hostkit.tasks.__path__)
    ]
    found = [task.name for module in modules for task in getattr(module, "TASKS", [])]
    assert sorted(found) == sorted(commands)


@pytest.mark.parametrize("name", list(commands))
def test_every_command_has_two_examples_that_parse(name: str) -> None:
    command = commands[name]
    assert len(command.examples) == 2
    for example in command.examples:
        found, rest = split(shlex.split(example), commands)
        assert found == name
        assert set(parse(command, rest)) == {flag.name for flag in command.flags + command.shared}
        assert f"\n  hostkit {example}\n" in task_help(command) + "\n"


@pytest.mark.parametrize("name", list(commands))
def test_every_flag_of_a_command_has_a_help_text_and_a_form_of_its_own(name: str) -> None:
    flags = commands[name].flags + commands[name].shared
    assert all(flag.help for flag in flags)
    forms = [form for flag in flags for form in (flag.long, flag.short) if form]
    assert len(forms) == len(set(forms))


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("train-status drafter", "run", "drafter"),
        ("checkpoints drafter", "run", "drafter"),
        ("stage drafter --dry-run", "run", "drafter"),
        ("eval-latest drafter", "eval", "drafter"),
        ("job-log 3f9c", "job", "3f9c"),
        ("job-log --job 3f9c", "job", "3f9c"),
        ("job-cancel -n 3f9c", "job", "3f9c"),
        ("practice --no-tour --keep", "tour", False),
    ],
)
def test_what_a_command_is_about_needs_no_flag(line: str, key: str, value: object) -> None:
    name, rest = split(shlex.split(line), commands)
    assert name is not None
    assert parse(commands[name], rest)[key] == value


def test_invoke_finds_the_same_commands_and_flags() -> None:
    from hostkit.tasks.namespace import namespace

    assert sorted(namespace.task_names) == sorted(commands)
    for name, command in commands.items():
        _assert_same_flags(command, {form for one in namespace[name].get_arguments() for form in one.names})


def _assert_same_flags(command: Command, forms: set[str]) -> None:
    flags = command.flags + command.shared
    assert forms == {flag.long[2:] for flag in flags} | {flag.short for flag in flags if flag.short}
