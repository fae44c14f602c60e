"""Invoke's Program with hostkit's exit codes: a bad flag or an unknown task is 64, Ctrl-C is 130."""

from __future__ import annotations

import os
import re
import sys
from difflib import get_close_matches

from invoke.exceptions import Exit, ParseError
from invoke.program import Program

from hostkit.errors import UsageError
from hostkit.sanitize import harmless

INTERRUPTED = 130
# Invoke's own flags that mean nothing here: for tasks that run shell commands, which none of ours does
_NOT_OURS = (
    "--command-timeout",
    "--config",
    "--debug",
    "--dry",
    "--echo",
    "--hide",
    "--list-depth",
    "--prompt-for-sudo-password",
    "--pty",
    "--warn-only",
    "--write-pyc",
)


class Hostkit(Program):
    """Invoke's Program, but a bad flag or an unknown task exits with 64, and Ctrl-C with 130."""

    def run(self, argv: list[str] | None = None, exit: bool = True) -> None:  # noqa: ARG002  (Invoke's own signature)
        try:
            self.create_config()
            try:
                self.parse_core(argv)
                self.parse_collection()
                self.parse_tasks()
                if self.args["dry"].value:  # Invoke's own, which no command of ours would heed
                    raise ParseError("--dry does nothing here: commands that act have --dry-run")
                self.parse_cleanup()
            except ValueError as error:  # Invoke hands a flag's word to int() as it is
                raise ParseError(f"a flag's value is not of its kind: {error}") from error
            self.update_config()
            self.execute()
        except ParseError as error:
            sys.exit(self._refuse(str(error)))
        except Exit as error:
            if error.message:
                _say(error.message)
            sys.exit(error.code)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except BrokenPipeError:  # the reader of a list or a help text has gone: `hostkit --list | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.exit(0)

    def _refuse(self, what: str) -> int:
        """Say what is wrong with the command line, as a document where one is asked for, and return the exit code."""
        unknown = re.fullmatch(r"No idea what '([^-].*)' is!", what)
        near = get_close_matches(unknown[1], self.collection.task_names, 1) if unknown else []
        meant = f"did you mean {near[0]}? " if near else ""
        wrong = UsageError(
            what,
            hint=meant + "hostkit --list names the commands, hostkit COMMAND --help the flags that follow",
        )
        if "--json" in self.argv:
            from hostkit.tasks.command import print_document

            print_document(wrong.document())
        else:
            _say(str(wrong))
        return wrong.exit_code

    def print_help(self) -> None:
        """Print how the command line is made up, with those of Invoke's flags that mean something here."""
        print(f"Usage: {self.binary} COMMAND [--flags]\n\nFlags without a command:\n")  # noqa: T201
        flags = self.initial_context.help_tuples()
        self.print_columns([one for one in flags if not _named(one[0]) & set(_NOT_OURS)])
        self.list_tasks()
        print(f"{self.binary} COMMAND --help tells a command's flags.")  # noqa: T201

    def normalize_argv(self, argv: list[str] | None) -> None:
        """Let `--help` stand after a command too: Invoke would hand it to one that needs a word, as that word."""
        super().normalize_argv(argv)
        first, *words = self.argv
        if len(words) > 1 and words[-1] in ("-h", "--help") and not words[0].startswith("-"):
            self.argv = [first, "--help", words[0]]


def _named(flags: str) -> set[str]:
    """Return the flags of a line of help, bare: `-T INT, --command-timeout=INT` is two."""
    return {re.split(r"[ =\[]", one.strip(), maxsplit=1)[0] for one in flags.split(",")}


def _say(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"hostkit: {harmless(text)}\n")
