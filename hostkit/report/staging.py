"""A staging for a person: its plan, and what was staged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hostkit.formatting import age, size
from hostkit.sanitize import one_line

if TYPE_CHECKING:
    from rich.console import Console

    from hostkit.staging.models import StagePlan
    from hostkit.staging.stage import Staged
    from hostkit.staging.timing import Expected


def show_plan(console: Console, plan: StagePlan, expected: Expected) -> None:
    """Print what a staging would do, and what stands in its way."""
    from rich.text import Text

    for label, text in plan_rows(plan, expected):
        console.print(Text.assemble((f"{label:>11} ", "dim"), one_line(text)), soft_wrap=True)
    for error in plan.obstacles():
        console.print(Text(f"would fail: {one_line(str(error))}", style="bold red"), soft_wrap=True)
    console.print("nothing was done")


def plan_rows(plan: StagePlan, expected: Expected) -> list[tuple[str, str]]:
    """Return each line of a plan: its label, and what it says."""
    room = plan.room
    rows = [
        ("checkpoint", f"step {plan.step} of {plan.run}, {plan.format}, {size(plan.contents.size or 0)}"),
        ("from", f"{plan.source}:{plan.source_path}"),
        ("to", f"{plan.destination}:{plan.path}"),
        ("route", _route(plan)),
        ("method", f"{plan.method}: {plan.why}" + ("" if plan.selection else f"; {_via(plan)}")),
        ("bytes", _bytes(plan)),
        ("time", expected.words),
        ("space", f"{size(room.get('free', 0))} free, of which {size(room.get('reserve', 0))} stay free"),
    ]
    if plan.prunable and not plan.staged:
        rows.append(
            (
                "removes",
                f"{plan.destination}: {', '.join(plan.prunable)} (the newest {plan.keep} staged stay)",
            )
        )
    if plan.holder:
        rows.append(("busy", "another command is copying it; this one would wait"))
    return rows


def _bytes(plan: StagePlan) -> str:
    if plan.staged:
        return "none: already staged; it would be verified again"
    return f"{plan.need:,} bytes pending" + (f", {size(plan.arrived)} copied before" if plan.arrived else "")


def _route(plan: StagePlan) -> str:
    """The hops in the order of the bytes, who carries them, and why."""
    carrier = {"push": f"pushed by {plan.source}", "relay": "relayed by this machine"}
    who = carrier.get(plan.by, f"pulled by {plan.destination}")
    return " → ".join(plan.hops) + f" ({who}{': ' + plan.by_why if plan.by_why else ''})"


def _via(plan: StagePlan) -> str:
    return "by rsync" if plan.via == "rsync" else f"streamed, since: {plan.via_why}"


def show_staged(console: Console, staged: Staged) -> None:
    """Print where the checkpoint is, and what proves it."""
    from rich.text import Text

    first, *more = staged_lines(staged)
    console.print(Text(one_line(first), style="bold"), soft_wrap=True)
    for line in more:
        console.print(Text(one_line(line), style="dim"), soft_wrap=True)


def staged_lines(staged: Staged) -> list[str]:
    """Return where the checkpoint is, what proves it, and what was removed."""
    how = "was already staged; verified again" if staged.reused else f"staged in {age(staged.seconds)}"
    proof = f"{staged.crc_proven} record CRCs verified" if staged.crc_proven else "no CRCs in this format"
    if staged.crc_unrecorded:
        proof += f", {staged.crc_unrecorded} records have none recorded"
    resumed = f", resumed at byte {staged.resumed_at}" if staged.resumed_at else ""
    return [
        f"step {staged.step} {how}: {staged.host}:{staged.path}",
        f"{size(staged.bytes)}{resumed}; {proof}; sha256 {staged.sha256}",
        *(
            f"removed {'an abandoned copy' if '/.staging/' in path else 'an older staged checkpoint'}: {path}"
            for path in staged.removed
        ),
    ]
