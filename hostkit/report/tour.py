"""How the practice tour speaks to the person watching it: headings, plain words, commands, ticks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hostkit.report.console import sanitize

if TYPE_CHECKING:
    from rich.console import Console

_LINE = 20.0  # seconds between two lines of progress where there is no terminal to redraw


class Narrator:
    """Tells a tour on a console; quiet, it tells nothing."""

    def __init__(self, console: Console, *, quiet: bool) -> None:
        self._console = console
        self._quiet = quiet

    def heading(self, text: str) -> None:
        if not self._quiet:
            self._console.print()
            self._console.rule(text, align="left", style="cyan")

    def say(self, text: str) -> None:
        if not self._quiet:
            self._console.print(text)

    def command(self, words: list[str]) -> None:
        """Show a command as it would be typed."""
        if not self._quiet:
            self._console.print()
            self._console.print("$ " + " ".join(words), style="bold", soft_wrap=True)

    def check(self, what: str, passed: bool, found: str) -> None:
        """Show one thing that must hold, and what was found."""
        if not self._quiet:
            self._console.print(_tick(passed, what, found))

    @contextmanager
    def part(self, what: str) -> Iterator[Callable[[str], None]]:
        """Show a part of the work: what it is, how far it is (by the function yielded), how long it took."""
        began = last = time.monotonic()
        if self._quiet:
            yield lambda _how_far: None
            return
        if self._console.is_terminal:
            with self._console.status(what) as status:
                yield lambda how_far: status.update(f"{what}: {sanitize(how_far)}")
        else:

            def line(how_far: str) -> None:
                nonlocal last
                if time.monotonic() - last >= _LINE:
                    last = time.monotonic()
                    self._console.print(f"    {what}: {sanitize(how_far)}", soft_wrap=True)

            yield line
        self._console.print(_tick(True, what, f"{time.monotonic() - began:.0f} s"))


def tour_summary(console: Console, document: dict[str, Any], to_try: Sequence[tuple[str, str]]) -> None:
    """Show how a tour ended, and command lines to try on a fleet that was kept, each with what it does."""
    from rich.text import Text

    failed = [check for check in document["checks"] if not check["passed"]]
    if document["checks"]:
        console.print()
    if failed:
        console.print(f"{len(failed)} of {len(document['checks'])} checks failed:", style="bold red")
        for check in failed:
            console.print(_tick(False, check["what"], check["found"]))
    elif document["checks"]:
        console.print(f"All {len(document['checks'])} checks passed.", style="bold green")
    if to_try:
        console.print("\nThe fleet stays up. Try:\n")
        width = max(len(line) for line, _ in to_try[1:])
        for line, what in to_try:
            console.print(
                Text.assemble("  ", (f"{line:<{width}}", "bold"), (f"  # {what}", "dim")), soft_wrap=True
            )


def _tick(passed: bool, what: str, found: str) -> Any:
    from rich.text import Text

    mark = ("✓ ", "green") if passed else ("✗ ", "bold red")
    return Text.assemble(mark, f"{what} ", (f"({sanitize(found)})", "dim"))
