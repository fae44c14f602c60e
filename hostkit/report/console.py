"""The terminal: one place that makes a rich Console, and one that makes remote text harmless."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# CSI and OSC sequences, then any other escape; then what is left of control characters.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)|\x1b[ -/]*[0-~]", re.DOTALL)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def console(*, stderr: bool = False) -> Console:
    """Return a Console without markup, emoji or highlighting: what it prints is data."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream is not None and stream.isatty() else 100

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end the process with a status of its own

    return Plain(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=False, width=width)


def harmless(text: str) -> str:
    """Return remote text without escape sequences, and with control and direction characters replaced."""
    return _CONTROLS.sub("\ufffd", _ESCAPES.sub("", text))


def remote(text: str, style: str = "") -> Text:
    """Return remote text as a rich Text: nothing in it is markup."""
    from rich.text import Text

    return Text(harmless(text), style=style)
