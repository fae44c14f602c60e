"""Checkpoints for a person: the list with the reason beside each, a staging's plan, and what was staged."""

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
    from hostkit.staging.models import StagePlan
    from hostkit.staging.stage import Staged
    from hostkit.staging.timing import Expected


def show_overview(console: Console, seen: Overview) -> None:
    """Print every checkpoint, newest first, what was decided about it, and what is known beside."""
    from rich.text import Text

    at = f", live step {seen.live_step}" if seen.live_step is not None else ", live step unknown"
    count = len(seen.rows)
    head = f"{seen.run} on {seen.host}{at}: {count} checkpoint{'s' if count != 1 else ''}"
    console.print(Text(head, style="bold"))
    if not count:
        console.print(
            "no file there matches `root` and `pattern` of the run's `checkpoints:` in the inventory"
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


def show_plan(console: Console, plan: StagePlan, expected: Expected) -> None:
    """Print what a staging would do, and what stands in its way."""
    from rich.text import Text

    room = plan.room
    rows = [
        ("checkpoint", f"step {plan.step} of {plan.run}, {plan.format}, {size(plan.contents.size or 0)}"),
        ("from", f"{plan.source}:{plan.source_path}"),
        ("to", f"{plan.destination}:{plan.path}"),
        ("route", _route(plan)),
        ("method", f"{plan.method}: {plan.why}" + ("" if plan.selection else f"; {_carried(plan)}")),
        ("bytes", _bytes(plan)),
        ("time", expected.words),
        ("space", f"{size(room.get('free', 0))} free, of which {size(room.get('reserve', 0))} stay free"),
    ]
    if plan.going and not plan.staged:
        rows.append(
            ("removes", f"{plan.destination}: {', '.join(plan.going)} (the newest {plan.keep} staged stay)")
        )
    if plan.holder:
        rows.append(("busy", "another command is copying it; this one would wait"))
    for label, text in rows:
        console.print(Text.assemble((f"{label:>11} ", "dim"), one_line(text)), soft_wrap=True)
    for error in plan.obstacles():
        console.print(Text(f"would fail: {one_line(str(error))}", style="bold red"), soft_wrap=True)
    console.print("nothing was done")


def _bytes(plan: StagePlan) -> str:
    if plan.staged:
        return "none: already staged; it would be verified again"
    return f"{plan.need:,} bytes pending" + (f", {size(plan.arrived)} copied before" if plan.arrived else "")


def _route(plan: StagePlan) -> str:
    """The hops in the order of the bytes, who carries them, and why."""
    carrier = {"push": f"pushed by {plan.source}", "relay": "relayed by this machine"}
    who = carrier.get(plan.by, f"pulled by {plan.destination}")
    return " → ".join(plan.hops) + f" ({who}{': ' + plan.by_why if plan.by_why else ''})"


def _carried(plan: StagePlan) -> str:
    return "by rsync" if plan.carried == "rsync" else f"streamed, since: {plan.carried_why}"


def show_staged(console: Console, staged: Staged) -> None:
    """Print where the checkpoint is, and what proves it."""
    from rich.text import Text

    how = "was already staged; verified again" if staged.reused else f"staged in {age_words(staged.seconds)}"
    console.print(
        Text(f"step {staged.step} {how}: {staged.host}:{one_line(staged.path)}", style="bold"), soft_wrap=True
    )
    proof = f"{staged.crc_proven} record CRCs proven" if staged.crc_proven else "no CRCs in this format"
    if staged.crc_unrecorded:
        proof += f", {staged.crc_unrecorded} records have none recorded"
    resumed = f", resumed at byte {staged.resumed_at:,}" if staged.resumed_at else ""
    console.print(
        Text(f"{size(staged.bytes)}{resumed}; {proof}; sha256 {staged.sha256}", style="dim"), soft_wrap=True
    )
    for path in staged.removed:
        what = "an abandoned copy" if "/.staging/" in path else "an older staged checkpoint"
        console.print(Text(f"removed {what}: {one_line(path)}", style="dim"), soft_wrap=True)
