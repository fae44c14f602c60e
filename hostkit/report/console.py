"""The terminal: one place that makes a rich Console, and the form in which remote text is printed on it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hostkit.sanitize import sanitize

if TYPE_CHECKING:
    from rich.console import Console
    from rich.segment import Segment
    from rich.text import Text

__all__ = ["console", "remote", "sanitize", "sanitize_document"]


def console(*, stderr: bool = False) -> Console:
    """Return a Console without markup, emoji or highlighting: what it prints is data."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream is not None and stream.isatty() else 100

    class Plain(Console):
        def _render_buffer(self, buffer: Iterable[Segment]) -> str:
            text = super()._render_buffer(buffer)
            # rich pads the cells of a table to the end of the line
            return text if self.is_terminal else re.sub(r" +(?=\n)", "", text)

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end the process with a status of its own

    return Plain(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=False, width=width)


def load() -> None:
    """Import what a screen is made of, while a host is still being logged in to."""
    import rich.console
    import rich.rule
    import rich.table
    import rich.text  # noqa: F401


def sanitize_document(value: Any) -> Any:
    """Return a document with every text in it sanitized: keys too, since metrics are named by whoever made them."""
    if isinstance(value, str):
        return sanitize(value)
    if isinstance(value, dict):
        return {sanitize_document(key): sanitize_document(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sanitize_document(item) for item in value]
    return value


def remote(text: str, style: str = "") -> Text:
    """Return remote text as a rich Text: nothing in it is markup."""
    from rich.text import Text

    return Text(sanitize(text), style=style)
