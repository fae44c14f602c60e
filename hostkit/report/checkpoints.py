"""A run's checkpoints for a person: the list with the reason beside each."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from hostkit.formatting import age as age_words
from hostkit.formatting import size
from hostkit.sanitize import one_line

if TYPE_CHECKING:
    from rich.console import Console

    from hostkit.evals.overview import Overview, Row


def show_overview(console: Console, seen: Overview) -> None:
    """Print every checkpoint, newest first, what was decided about it, and what is known beside."""
    from rich.text import Text

    at = f", live step {seen.live_step}" if seen.live_step is not None else ", live step unknown"
    count = len(seen.rows)
    head = f"{seen.run} on {seen.host}{at}: {count} checkpoint{'s' if count != 1 else ''}"
    console.print(Text(head, style="bold"))
    if not count:
        console.print(
            "nothing saved yet, or `root` and `pattern` of the run's `checkpoints:` in the inventory do not match"
            if seen.declared
            else f"the inventory does not say where {seen.run} saves: declare `checkpoints:` with a `root` for it"
        )
    _rows(console, seen)
    if seen.note:
        console.print(Text(f"note: {one_line(seen.note)}", style="yellow"))
    for text in (*_attempts(seen), *_retention(seen), *_best(seen)):
        console.print(Text(one_line(text), style="dim"))
    if seen.chosen:
        console.print(Text(one_line(seen.chosen.path), style="dim"), soft_wrap=True)


HEADINGS = ("step", "inside", "size", "weights", "age", "attempt")
BESIDE = 34  # columns that the reason needs to stand in the line itself; else it comes below it


def _rows(console: Console, seen: Overview) -> None:
    """Print the table. Where the terminal is narrow, a row takes more lines, and nothing is left out."""
    from rich.text import Text

    cells = [_cells(row) for row in seen.rows]
    if not cells:
        return
    widths = [max(map(len, column)) for column in zip(HEADINGS, *cells, strict=True)]
    whole = 2 + sum(widths) + 2 * len(widths)
    stacked = whole > console.width
    if not stacked:
        console.print(Text("  " + _line(HEADINGS, widths), style="bold"))
    for row, texts in zip(seen.rows, cells, strict=True):
        style = "bold" if row.chosen else "" if row.candidate.complete else "yellow"
        mark = "▸ " if row.chosen else "  "
        told = _told(row)
        if stacked:
            named = [f"{name} {text}" for name, text in zip(HEADINGS, texts, strict=True) if text]
            _hang(console, mark, "  ", ", ".join([*named, told]), style)
        elif console.width - whole >= BESIDE:
            _hang(console, mark + _line(texts, widths) + "  ", " " * whole, told, style)
        else:
            console.print(Text((mark + _line(texts, widths)).rstrip(), style=style))
            _hang(console, "    ", "    ", told, style)


def _cells(row: Row) -> tuple[str, ...]:
    one = row.candidate
    return (
        str(one.step),
        str(row.step_inside) if row.step_inside is not None else "",
        size(one.size) if one.size is not None else "?",
        size(row.weights_bytes) if row.weights_bytes is not None else "",
        age_words(row.age) if row.age is not None else "?",
        row.attempt.word.replace("-", " "),
    )


def _line(texts: Sequence[str], widths: Sequence[int]) -> str:
    """Numbers to the right, the word at the end to the left."""
    *numbers, word = (
        text.rjust(width) if index < len(widths) - 1 else text.ljust(width)
        for index, (text, width) in enumerate(zip(texts, widths, strict=True))
    )
    return "  ".join([*numbers, word])


def _told(row: Row) -> str:
    more = ["best evaluated"] if row.best else []
    more += ["next deleted"] if row.next_to_go else []
    return "; ".join([one_line(row.why), *more])


def _hang(console: Console, first: str, rest: str, text: str, style: str) -> None:
    """Print a text with its further lines below its beginning."""
    from rich.text import Text

    lines = wrap(text, max(12, console.width - len(first)), break_on_hyphens=False) or [""]
    for number, line in enumerate(lines):
        console.print(Text((rest if number else first) + line, style=style), soft_wrap=True)


def _attempts(seen: Overview) -> list[str]:
    """Say once what each attempt is told by, with its steps."""
    steps: dict[tuple[str, str], list[str]] = {}
    for row in seen.rows:
        steps.setdefault((row.attempt.word, row.attempt.evidence), []).append(str(row.candidate.step))
    return [
        f"{word.replace('-', ' ')} ({', '.join(of[:6])}{' …' if len(of) > 6 else ''}): {evidence}"
        for (word, evidence), of in steps.items()
    ]


def _retention(seen: Overview) -> list[str]:
    if seen.retention is None:
        return []
    going = [str(row.candidate.step) for row in seen.rows if row.next_to_go]
    when = f"at the next save ({seen.next_save})" if seen.next_save is not None else "at the next save"
    return [f"the trainer keeps {seen.retention.words}; it deletes {', '.join(going) or 'nothing'} {when}"]


def _best(seen: Overview) -> list[str]:
    known = {one.eval for one in seen.best}
    out = [f"best evaluated ({name}): no result yet" for name in seen.evals if name not in known]
    for one in seen.best:
        out.append(f"best evaluated ({one.eval}): {one.words}")
        out += [f"  {one.beside}"] if one.beside else []
    return out + [f"  left out: {note}" for note in seen.best_notes]
