"""Print a training's status on a terminal: the verdict first, then why, then figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hostkit.report.console import sanitize
from hostkit.report.status_rows import Row, Screen, screen_of

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from hostkit.liveness.status import TrainStatus

_VERDICTS = {0: "bold green", 1: "bold yellow", 2: "bold red", 3: "bold yellow"}  # by the verdict's exit code
_LEVELS = {"": "", "warning": "yellow", "critical": "bold red"}


def show(console: Console, status: TrainStatus, *, brief: bool = False, log: bool = True) -> None:
    """Print one run's status; the flags are those of `screen_of`."""
    screen = screen_of(status, brief=brief, log=log)
    console.print(_headline(screen))
    for row in screen.rows:
        console.print(_row(row))
    if screen.log_lines:
        _log(console, screen)
    console.print()


def _headline(screen: Screen) -> RenderableType:
    from rich.text import Text

    style = _VERDICTS[screen.verdict.exit]
    line = Text.assemble((screen.verdict, style), f"  {screen.name}: ", (screen.verdict.phrase, style))
    return line.append(f"  {screen.since}" if screen.since else "", style="dim")


def _row(row: Row) -> RenderableType:
    """Return a label and its text, which wraps beside it at any width."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1))
    table.add_column(width=12, justify="right", style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(Text(row.label), Text(sanitize(row.text), style=_LEVELS[row.level]))
    return table


def _log(console: Console, screen: Screen) -> None:
    """Print the log's last lines: a row for each on a terminal, whole where a file or a program reads them."""
    from rich.rule import Rule
    from rich.text import Text

    console.print(Rule(Text(sanitize(screen.log_title)), style="dim", align="left"))
    for line in screen.log_lines:
        text = Text(sanitize(line), style="dim")
        if console.is_terminal:
            console.print(text, no_wrap=True, overflow="ellipsis")
        else:
            console.print(text, soft_wrap=True)
