"""Print jobs: the list, one job's state, the end of its output. All remote text is sanitized."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hostkit.jobs.models import State
from hostkit.report.console import remote
from hostkit.report.jobs_rows import detail_of, rows_of

if TYPE_CHECKING:
    from rich.console import Console

    from hostkit.jobs import JobState

_STYLES = {
    State.RUNNING: "cyan",
    State.DONE: "green",
    State.CANCELLED: "yellow",
    State.TIMEOUT: "yellow",
    State.UNKNOWN: "magenta",
}


def show_jobs(console: Console, jobs: Sequence[JobState], unreachable: dict[str, str]) -> None:
    """Print a row for each job, newest last, then why jobs ended badly and which hosts did not answer."""
    from rich.table import Table

    rows = rows_of(jobs)
    if rows:
        table = Table(box=None, pad_edge=False)
        for heading in ("host", "job", "what", "state", "started (UTC)", "took"):
            table.add_column(heading, no_wrap=heading != "what", overflow="fold")
        for row in rows:
            state = remote(row.outcome, _STYLES.get(row.state, "red"))
            table.add_row(row.host, remote(row.job), remote(row.what), state, row.started, row.took)
        console.print(table)
        for row in rows:
            if row.why:
                console.print(remote(f"{row.job}: {row.why}", "dim"))
    elif not unreachable:
        console.print("no jobs")
    for host, why in unreachable.items():
        console.print(remote(f"{host}: unknown: {why}", "magenta"))


def show_job(console: Console, job: JobState) -> None:
    """Print one job's state, with what that rests on."""
    from rich.text import Text

    detail = detail_of(job)
    outcome = remote(detail.outcome, _STYLES.get(detail.state, "red"))
    reason = f", {detail.reason}" if detail.reason else ""
    console.print(Text.assemble(remote(f"job {detail.job} on {detail.host}: "), outcome, remote(reason)))
    for line in detail.evidence:
        console.print(remote(f"  {line}"), soft_wrap=True)


def show_log(console: Console, job: JobState, lines: list[str], cut: bool) -> None:
    """Print the last lines of a job's output after its state."""
    show_job(console, job)
    if cut:
        console.print(remote("…", "dim"))
    for line in lines:
        console.print(remote(line), soft_wrap=True)
