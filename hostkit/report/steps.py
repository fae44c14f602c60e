"""Show the steps of an evaluation while they happen: a live list on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from hostkit.report.console import console, sanitize

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from hostkit.evals.steps import Step, Steps

_MARKS = {"pending": "·", "running": "▸", "done": "✓", "skipped": "-", "failed": "✗"}
_STYLES = {"pending": "dim", "running": "bold", "done": "green", "skipped": "dim", "failed": "bold red"}


SECONDS_BETWEEN_LINES = 10.0  # of one step's progress, where no terminal shows it in place


class StepBoard:
    """Shows steps on stderr. Give `changed` to `Steps` as its watcher, and enter it around the work."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self.steps: Steps | None = None
        self._live: Live | None = None
        self._last = ""
        self._last_at = 0.0
        self._console = console(stderr=True)

    def __enter__(self) -> Self:
        if not self.quiet and self.steps is not None and self._console.is_terminal:
            from rich.live import Live

            self._live = Live(self._table(), console=self._console, refresh_per_second=8)
            self._live.start()
        elif not self.quiet and self.steps is not None:
            names = ", ".join(step.name for step in self.steps.all)
            self._console.print(f"steps: {names}", soft_wrap=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.update(self._table(), refresh=True)
            self._live.stop()

    def changed(self, step: Step) -> None:
        """Show that a step changed."""
        if self.quiet:
            return
        if self._live is not None:
            self._live.update(self._table())
            return
        text, now = _text(step), time.monotonic()
        recent = step.name == self._last and now - self._last_at < SECONDS_BETWEEN_LINES
        if (step.state == "running" and recent) or (
            step.state in ("running", "skipped") and not step.message
        ):
            return
        self._last, self._last_at = step.name, now
        self._console.print(f"{step.name:<14} {step.state:<8} {text}".rstrip(), soft_wrap=True)

    def _table(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 1))
        for step in self.steps.all if self.steps is not None else []:
            style = _STYLES[step.state]
            table.add_row(Text(_MARKS[step.state], style), Text(step.name, style), Text(_text(step), "dim"))
        return table


def _text(step: Step) -> str:
    took = f" ({step.seconds:.1f} s)" if step.seconds is not None and step.seconds >= 0.1 else ""
    return sanitize(step.message) + took
