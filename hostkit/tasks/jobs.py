"""`job-list`, `job-log`, `job-cancel`: the payloads that hostkit launched, where they are and how they ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hostkit.errors import UsageError
from hostkit.tasks.command import Outcome, Session, command

if TYPE_CHECKING:
    from rich.console import Console

    from hostkit.jobs import JobState
    from hostkit.jobs.lookup import JobList

_JOB = "the job's id, or its first digits; ID-2 is its second attempt"
_HOST = "the job's host (default: every host that an evaluation names)"


@command(
    "job-list",
    help={"host": "only this host (default: every host that an evaluation names)"},
    positional=("host",),
    examples=("job-list", "job-list ct129 --json"),
)
def job_list(session: Session, host: str | None = None) -> Outcome:
    """List the jobs of each host, oldest first: what each is, its state, and why it ended.

    Exit code: 0; 69 when a host was not reached (the others are listed).
    """
    listed, _ = _list(session, host)
    document = {
        "schema": "hostkit.jobs/1",
        "jobs": [job.document() for job in listed.jobs],
        "unreachable": [error.document() | {"host": name} for name, error in listed.failed.items()],
    }

    def render(console: Console) -> None:
        from hostkit.report.jobs import show_jobs

        show_jobs(console, listed.jobs, {name: str(error) for name, error in listed.failed.items()})

    worst = max((error.exit_code for error in listed.failed.values()), default=0)
    return Outcome(document, exit=worst, render=render)


@command(
    "job-log",
    help={
        "job": _JOB,
        "host": _HOST,
        "lines": "how many of the last lines to show (default: 50)",
        "err": "show standard error instead of standard output",
    },
    examples=("job-log 3f9c --lines 200", "job-log 3f9c --err"),
)
def job_log(
    session: Session, job: str, host: str | None = None, lines: int = 50, err: bool = False
) -> Outcome:
    """Show a job's state and the last lines of its output."""
    from hostkit.jobs.lookup import last_lines, launcher_of

    if not 0 < lines <= 10_000:
        raise UsageError(f"--lines {lines}: must be 1 to 10000")
    state = _find(session, job, host)
    file = "err" if err else "out"
    log = last_lines(launcher_of(session.connections, session.inventory, state.host), state, lines, file=file)
    document = {
        "schema": "hostkit.job-log/1",
        "job": state.document(),
        "file": file,
        "lines": log.lines,
        "cut": log.cut,
        "offset": log.offset,
    }

    def render(console: Console) -> None:
        from hostkit.report.jobs import show_log

        show_log(console, state, log.lines, log.cut)

    return Outcome(document, render=render)


@command(
    "job-cancel",
    help={"job": _JOB, "host": _HOST},
    examples=("job-cancel 3f9c --dry-run", "job-cancel 3f9c-2 --host ct129"),
    acts=True,
)
def job_cancel(session: Session, job: str, host: str | None = None) -> Outcome:
    """End a job: its own process group, by the identity recorded when it started, and no other process.

    Exit code: 0 it has ended (also if it had before); 1 it has, and a run there is another process than before.
    """
    from hostkit.jobs.cancel import Cancel

    cancel = Cancel(session.connections, session.inventory, _find(session, job, host))
    if session.dry_run:
        plan = cancel.plan.document()

        def render_plan(console: Console) -> None:
            from hostkit.report.plan import show

            show(plan, console)

        return Outcome(plan, render=render_plan)
    ended = cancel.run()
    document = {
        "schema": "hostkit.job-cancel/1",
        "job": ended.job.document(),
        "runs_changed": ended.changed,
        "runs_not_known": ended.unknown,
    }

    def render(console: Console) -> None:
        from rich.text import Text

        from hostkit.report.jobs import show_job

        show_job(console, ended.job)
        for line in ended.changed + ended.unknown:
            console.print(Text(line))

    return Outcome(document, exit=1 if ended.changed else 0, render=render)


def _find(session: Session, job: str, host: str | None) -> JobState:
    from hostkit.jobs.lookup import check_id, find_job

    check_id(job)
    listed, hosts = _list(session, host)
    return find_job(listed, job, hosts)


def _list(session: Session, host: str | None) -> tuple[JobList, list[str]]:
    from hostkit.jobs.lookup import job_hosts, list_jobs

    hosts = job_hosts(session.inventory, host)
    session.say(f"asking {', '.join(hosts)} …")
    return list_jobs(session.connections, session.inventory, hosts), hosts


TASKS = [job_list, job_log, job_cancel]
