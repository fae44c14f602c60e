"""Checkpoints for a person: the list with the reason beside each, a staging's plan, and what was staged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hostkit.liveness.words import age as age_words
from hostkit.liveness.words import size
from hostkit.report.console import harmless

if TYPE_CHECKING:
    from rich.console import Console

    from hostkit.checkpoints import Choice, Staged, StagePlan


def show_choice(
    console: Console,
    run: str,
    host: str,
    live: int | None,
    choice: Choice,
    *,
    ages: Mapping[str, float | None],
    inside: Mapping[str, tuple[int | None, int | None]],
) -> None:
    """Print every checkpoint, newest first, and what was decided about it.

    `ages` in seconds, `inside` the step that it holds and the bytes of its weights, both by path.
    """
    from rich.table import Table
    from rich.text import Text

    at = f", live step {live:,}" if live is not None else ", live step not known"
    count = len(choice.ranked)
    console.print(Text(f"{run} on {host}{at}: {count} checkpoint{'s' if count != 1 else ''}", style="bold"))
    if not count:
        console.print(
            "nothing there fits the run's `checkpoints:` in the inventory (its root and its pattern)"
        )
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for heading in ("step", "inside", "size", "weights", "age"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for one in choice.ranked:
        seconds = ages.get(one.candidate.path)
        step, weights = inside.get(one.candidate.path, (None, None))
        table.add_row(
            "▸" if one.chosen else "",
            f"{one.candidate.step:,}",
            f"{step:,}" if step is not None else "",
            size(one.candidate.size) if one.candidate.size is not None else "?",
            size(weights) if weights is not None else "",
            age_words(seconds) if seconds is not None else "?",
            Text(harmless(one.why)),
            style="bold" if one.chosen else "" if one.candidate.complete else "yellow",
        )
    if count:
        console.print(table)
    if choice.note:
        console.print(Text(f"note: {harmless(choice.note)}", style="yellow"))
    if choice.chosen:
        console.print(Text(harmless(choice.chosen.path), style="dim"))


def show_plan(console: Console, plan: StagePlan) -> None:
    """Print what a staging would do, and what stands in its way."""
    from rich.text import Text

    room = plan.room
    rows = [
        ("checkpoint", f"step {plan.step} of {plan.run}, {plan.format}, {size(plan.contents.size or 0)}"),
        ("from", f"{plan.source}:{plan.source_path}"),
        ("to", f"{plan.destination}:{plan.path}"),
        ("route", _route(plan)),
        ("method", f"{plan.method}: {plan.why}" + ("" if plan.selection else f"; {_carried(plan)}")),
        (
            "bytes",
            f"{plan.need:,} to come" + (f", {size(plan.arrived)} there already" if plan.arrived else ""),
        ),
        ("space", f"{size(room.get('free', 0))} free, of which {size(room.get('reserve', 0))} stay free"),
    ]
    if plan.staged:
        rows[5] = ("bytes", "none: it is staged already, and would be proven again")
    if plan.holder:
        rows.append(("busy", "another command copies it now; this one would wait for it"))
    for label, text in rows:
        console.print(Text.assemble((f"{label:>11} ", "dim"), harmless(text)), soft_wrap=True)
    for error in plan.obstacles():
        console.print(Text(f"would fail: {harmless(str(error))}", style="bold red"), soft_wrap=True)
    console.print("nothing was done")


def _route(plan: StagePlan) -> str:
    """The hops in the order of the bytes, who carries them, and why."""
    hops = plan.route if plan.by in ("push", "relay") else plan.route[::-1]
    carrier = {"push": f"pushed by {plan.source}", "relay": "relayed by this machine"}
    who = carrier.get(plan.by, f"pulled by {plan.destination}")
    return " → ".join(hops) + f" ({who}{': ' + plan.by_why if plan.by_why else ''})"


def _carried(plan: StagePlan) -> str:
    return "by rsync" if plan.carried == "rsync" else f"streamed, since: {plan.carried_why}"


def show_staged(console: Console, staged: Staged) -> None:
    """Print where the checkpoint is, and what proves it."""
    from rich.text import Text

    how = (
        "was staged already, and proven again" if staged.reused else f"staged in {age_words(staged.seconds)}"
    )
    console.print(
        Text(f"step {staged.step} {how}: {staged.host}:{harmless(staged.path)}", style="bold"), soft_wrap=True
    )
    proof = f"{staged.crc_proven} record CRCs proven" if staged.crc_proven else "no CRCs in this format"
    if staged.crc_unrecorded:
        proof += f", {staged.crc_unrecorded} records have none recorded"
    resumed = f", went on at byte {staged.resumed_at:,}" if staged.resumed_at else ""
    console.print(
        Text(f"{size(staged.bytes)}{resumed}; {proof}; sha256 {staged.sha256}", style="dim"), soft_wrap=True
    )
    for path in staged.removed:
        console.print(Text(f"let go: {harmless(path)}", style="dim"), soft_wrap=True)
