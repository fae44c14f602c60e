"""Print an evaluation: the conclusion first, then the figures with what they rest on, the training at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hostkit.report.console import remote, sanitize_document
from hostkit.report.evaluation_rows import Row, Screen, screen_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_LEVELS = {"": "", "good": "green", "warning": "yellow", "bad": "bold red"}


def show(document: dict[str, Any], console: Console) -> None:
    """Print a `hostkit.eval-latest/1` document."""
    from rich.text import Text

    screen = screen_of(sanitize_document(document))
    archived = "  (from the archive)" if screen.archived else ""
    console.print()
    console.print(
        Text.assemble((screen.name, "bold"), f"  step {screen.step}  ", (screen.path, "dim"), archived),
        soft_wrap=True,
    )
    conclusion = screen.conclusion
    console.print(
        Text.assemble((conclusion.label, f"bold {_LEVELS[conclusion.level]}"), f"  {conclusion.text}")
    )
    console.print(Text(screen.sample, "bold red" if screen.missing_prompts else ""))
    console.print(_metrics(screen))
    if screen.domains:
        console.print(_domains(screen))
    for row in screen.comparison:
        console.print(_line(row, indent="  "))
    for caveat in screen.caveats:
        console.print(_line(Row("caveat", caveat, "warning")))
    console.print(_line(screen.training))
    for note in screen.notes:
        console.print(_line(Row("note", note, "warning"), indent="  "))
    console.print(remote(f"archived: {screen.archive}", "dim"), soft_wrap=True)


def _line(row: Row, indent: str = "") -> Any:
    from rich.text import Text

    return Text.assemble(indent, (f"{row.label}: ", _LEVELS[row.level]), row.text)


def _metrics(screen: Screen) -> Table:
    table = _table(
        ("metric", "left"), ("mean", "right"), ("95 % interval", "right"), ("n", "right"), ("", "left")
    )
    for metric in screen.metrics:
        table.add_row(metric.name, metric.mean, metric.interval, str(metric.count), metric.meaning)
    return table


def _domains(screen: Screen) -> Table:
    table = _table(("domain", "left"), ("accept_len", "right"), ("prompts", "right"), ("blocks", "right"))
    for domain in screen.domains:
        table.add_row(remote(domain.name), domain.accept_len, domain.prompts, str(domain.blocks))
    return table


def _table(*columns: tuple[str, Any]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for title, side in columns:
        table.add_column(title, justify=side)
    return table
