"""Jobs for a person: the list, one job's end of output, how one ended; all remote text sanitized."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hostkit.formatting import age, moment
from hostkit.report.console import sanitize

if TYPE_CHECKING:
    from rich.console import Console

    from hostkit.jobs import JobState

_STYLES = {
    "running": "cyan",
    "done": "green",
    "cancelled": "yellow",
    "timeout": "yellow",
    "unknown": "magenta",
}


def show_jobs(console: Console, jobs: Sequence[JobState], unreachable: dict[str, str]) -> None:
    """Print a row for each job, newest last, why one ended badly below them, and each host that did not answer."""
    from rich.table import Table
    from rich.text import Text

    if jobs:
        table = Table(box=None, pad_edge=False)
        for heading in ("host", "job", "what", "state", "started (UTC)", "took"):
            table.add_column(heading, no_wrap=heading != "what", overflow="fold")
        for job in jobs:
            began = job.started_at or job.claimed_at
            name = f"{job.spec.kind} {job.spec.name}" if job.spec else "?"
            table.add_row(
                job.host,
                Text(sanitize(job.job)),
                Text(sanitize(name)),
                Text(job.state, style=_STYLES.get(job.state, "red")),
                moment(began) if began is not None else "?",
                took(job),
            )
        console.print(table)
        for job in jobs:
            if job.reason and job.state not in ("done", "running"):
                console.print(Text(f"{sanitize(job.job)}: {sanitize(job.reason)}", style="dim"))
    elif not unreachable:
        console.print("no jobs")
    for host, why in unreachable.items():
        console.print(Text(f"{host}: not known, {sanitize(why)}", style="magenta"))


def show_job(console: Console, job: JobState) -> None:
    """Print how one job stands, with what that rests on."""
    from rich.text import Text

    style = _STYLES.get(job.state, "red")
    console.print(
        Text.assemble(
            f"job {sanitize(job.job)} on {job.host}: ", (job.state, style), f", {sanitize(job.reason or '')}"
        )
    )
    for line in job.evidence:
        console.print(Text(f"  {sanitize(line)}"))
    measures = job.isolation_measures
    applied = [sanitize(measure.name) for measure in measures if measure.applied]
    missing = [sanitize(f"{measure.name} ({measure.detail})") for measure in measures if not measure.applied]
    if applied:
        text = f"  isolation: {', '.join(applied)}" + (
            f"; not applied: {', '.join(missing)}" if missing else ""
        )
        console.print(Text(text), soft_wrap=True)


def show_log(console: Console, job: JobState, lines: list[str], cut: bool) -> None:
    """Print the last lines of a job's output after its state."""
    from rich.text import Text

    show_job(console, job)
    if cut:
        console.print(Text("…", style="dim"))
    for line in lines:
        console.print(Text(sanitize(line)), soft_wrap=True)


def took(job: JobState) -> str:
    """Return how long a job took, or runs by now (by this machine's clock, so a guess while it runs)."""
    seconds = job.wall_seconds if job.ended_at is not None else None
    if seconds is None and job.state == "running" and job.started_at is not None:
        seconds = max(0.0, time.time() - job.started_at)
    return "?" if seconds is None else age(seconds)
