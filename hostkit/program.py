"""Invoke's Program with hostkit's exit codes: a bad flag or an unknown task is 64, Ctrl-C is 130."""

from __future__ import annotations

import os
import sys

from invoke.exceptions import Exit, ParseError
from invoke.program import Program

from hostkit.harmless import harmless

USAGE = 64
INTERRUPTED = 130


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
            _say(f"{error} (hostkit --list shows the commands, hostkit --help COMMAND its flags)")
            sys.exit(USAGE)
        except Exit as error:
            if error.message:
                _say(error.message)
            sys.exit(error.code)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except BrokenPipeError:  # the reader of a list or a help text has gone: `hostkit --list | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.exit(0)

    def normalize_argv(self, argv: list[str] | None) -> None:
        """Let `--help` stand after a command too: Invoke would hand it to one that needs a word, as that word."""
        super().normalize_argv(argv)
        first, *words = self.argv
        if len(words) > 1 and words[-1] in ("-h", "--help") and not words[0].startswith("-"):
            self.argv = [first, "--help", words[0]]


def _say(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"hostkit: {harmless(text)}\n")
