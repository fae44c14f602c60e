"""`job-list`, `job-log`, `job-cancel`: the payloads that hostkit launched, where they are and how they ended."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hostkit.errors import HostkitError, UsageError
from hostkit.tasks.command import Outcome, Session, command

if TYPE_CHECKING:
    from rich.console import Console

    from hostkit.jobs import JobState
    from hostkit.liveness.status import TrainStatus
    from hostkit.plan import Plan

_WORD = re.compile(r"[0-9a-f]{4,16}(-[1-9][0-9]*)?")
_LINE_BYTES = 400  # asked for each line of a log; longer lines are cut
AT_ONCE = 16  # hosts asked at the same time

_JOB = "the job's id, or enough of its beginning; ID-2 is its second attempt"
_HOST = "the job's host (default: every host that an evaluation names)"


@command(
    "job-list",
    help={"host": "only this host (default: every host that an evaluation names)"},
    positional=("host",),
    examples=("job-list", "job-list ct129 --json"),
)
def job_list(session: Session, host: str | None = None) -> Outcome:
    """List the jobs of each host, oldest first: what each is, how it stands or ended, and why.

    Exit code: 0; 69 when a host was not reached (the others are listed all the same).
    """
    jobs, failed = _everywhere(session, host)
    document = {
        "schema": "hostkit.jobs/1",
        "jobs": [job.document() for job in jobs],
        "unreachable": [error.document() | {"host": name} for name, error in failed.items()],
    }

    def render(console: Console) -> None:
        from hostkit.report.jobs import show_jobs

        show_jobs(console, jobs, {name: str(error) for name, error in failed.items()})

    worst = max((error.exit_code for error in failed.values()), default=0)
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
    """Show how a job stands, and the last lines that it wrote. Nothing is followed, nothing is left behind."""
    from hostkit.jobs import tail

    if not 0 < lines <= 10_000:
        raise UsageError(f"--lines {lines}: ask for 1 to 10000 lines")
    state = _find(session, job, host)
    transport = session.connections.transport(state.host)
    asked = min(lines * _LINE_BYTES, 4 * 2**20)
    name = "err" if err else "out"
    data, end = tail(
        transport, session.inventory.hosts[state.host], state.exact, -asked, file=name, limit=asked
    )
    text = re.split(r"\r?\n|\r", data.decode("utf-8", "replace"))
    text = text[:-1] if text and not text[-1] else text
    cut = len(text) > lines or end > len(data)
    shown = text[-lines:]
    document = {
        "schema": "hostkit.job-log/1",
        "job": state.document(),
        "file": name,
        "lines": shown,
        "cut": cut,
        "offset": end,
    }

    def render(console: Console) -> None:
        from hostkit.report.jobs import show_log

        show_log(console, state, shown, cut)

    return Outcome(document, render=render)


@command(
    "job-cancel",
    help={"job": _JOB, "host": _HOST},
    examples=("job-cancel 3f9c --dry-run", "job-cancel 3f9c-2 --host ct129"),
    acts=True,
)
def job_cancel(session: Session, job: str, host: str | None = None) -> Outcome:
    """End a job: its own process group, by the identity that was recorded when it began, and no other.

    Exit code: 0 it is over (also if it was before); 1 it is, and a run there is no longer the process that it was.
    """
    from getpass import getuser
    from socket import gethostname

    from hostkit.jobs import cancel, check, protect
    from hostkit.journal import Journal

    state = _find(session, job, host)
    plan = _cancel_plan(state)
    before = _runs_beside(session, state.host)
    check(plan, protect(session.inventory, before))
    if session.dry_run:
        return Outcome(plan.document(), render=lambda console: _show_plan(console, plan))
    if not state.final:  # written down before it, since a command may be cut amid it
        Journal().record("job-cancel", host=state.host, job=state.job)
    transport = session.connections.transport(state.host)
    by = f"{getuser()}@{gethostname()}"
    ended = cancel(transport, session.inventory.hosts[state.host], state.exact, by=by)
    Journal().record("job-cancelled", host=state.host, job=state.job, state=ended.state, reason=ended.reason)
    changed, unknown = held_against(before, _runs_beside(session, state.host))
    document = {
        "schema": "hostkit.job-cancel/1",
        "job": ended.document(),
        "runs_changed": changed,
        "runs_not_known": unknown,
    }

    def render(console: Console) -> None:
        from rich.text import Text

        from hostkit.report.jobs import show_job

        show_job(console, ended)
        for line in changed + unknown:
            console.print(Text(line))

    return Outcome(document, exit=1 if changed else 0, render=render)


def _cancel_plan(state: JobState) -> Plan:
    from hostkit.plan import Effect, Plan, PlanStep

    known = [state.identity.supervisor, state.identity.payload] if state.identity else []
    effects = [Effect.signals(state.host, one) for one in known if one is not None]
    step = PlanStep(
        name="cancel",
        host=state.host,
        summary=f"end job {state.job} by its recorded identity"
        if not state.final
        else f"nothing: it is {state.state}",
        effects=(Effect.writes(state.host, state.path), *effects) if not state.final else (),
    )
    return Plan(title=f"cancel job {state.job}", steps=(step,))


def _show_plan(console: Console, plan: Plan) -> None:
    from hostkit.report.plan import show

    show(plan.document(), console)


def held_against(before: list[TrainStatus], after: list[TrainStatus]) -> tuple[list[str], list[str]]:
    """Say which runs are another process than before, and of which that is not known: a look that saw nothing."""
    from hostkit.liveness.verdict import Verdict

    changed, unknown = [], []
    for was, now in zip(before, after, strict=True):
        how = f"{_who(was)} before, {_who(now)} after"
        if Verdict.UNKNOWN in (was.verdict, now.verdict):
            unknown.append(f"run {was.run}: not known whether it is the same: {how}")
        elif was.identity != now.identity:
            changed.append(f"run {was.run}: {how}")
    return changed, unknown


def _who(status: TrainStatus) -> str:
    return f"{status.verdict}, pid {status.identity.pid}" if status.identity else status.verdict


def _runs_beside(session: Session, host: str) -> list[TrainStatus]:
    """Look at the runs that live on the job's machine, so that they are known before it is acted on."""
    from hostkit.jobs import protect
    from hostkit.liveness.observe import observe

    protected = protect(session.inventory)
    machine = protected.machine(host)
    names = [run.name for run in protected.runs if run.machine == machine]
    return [observe(session.connections, session.inventory, name) for name in names]


def _find(session: Session, word: str, host: str | None) -> JobState:
    """Return the one job that `word` means. A bare id is its newest attempt."""
    if not _WORD.fullmatch(word):
        raise UsageError(
            f"{word!r} is no job id", hint="4 to 16 hexadecimal digits, and -N for an attempt; see job-list"
        )
    jobs, failed = _everywhere(session, host)
    start, _, attempt = word.partition("-")
    fitting: dict[tuple[str, str], JobState] = {}
    for job in jobs:
        base = job.job.partition("-")[0]
        if base.startswith(start) and attempt in ("", str(job.attempt)):
            best = fitting.get((job.host, base))
            if best is None or job.attempt > best.attempt:
                fitting[job.host, base] = job
    if len(fitting) == 1:
        return next(iter(fitting.values()))
    if fitting:
        names = ", ".join(f"{job.job} on {job.host}" for job in fitting.values())
        raise UsageError(f"{word} could be {names}", hint="write more of it, or --host")
    for error in failed.values():
        raise error  # it may be there: not reached is not absent
    raise UsageError(
        f"no job {word} on {', '.join(_hosts(session, host))}", hint="job-list shows those there are"
    )


def _hosts(session: Session, host: str | None) -> list[str]:
    if host is not None:
        if host not in session.inventory.hosts:
            raise UsageError(
                f"no host is called {host!r}", hint="hosts: " + ", ".join(session.inventory.hosts)
            )
        return [host]
    names = list(dict.fromkeys(one.host for one in session.inventory.evals.values()))
    if not names:
        raise UsageError("the inventory has no evaluations, so no host to ask", hint="name one with --host")
    return names


def _everywhere(session: Session, host: str | None) -> tuple[list[JobState], dict[str, HostkitError]]:
    """Ask all hosts at the same time; return their jobs, and the error of each host that gave none."""
    from concurrent.futures import ThreadPoolExecutor

    from hostkit.jobs import list_jobs

    names = _hosts(session, host)
    inventory, connections = session.inventory, session.connections

    def ask_one(name: str) -> list[JobState]:
        return list_jobs(connections.transport(name), inventory.hosts[name])

    session.say(f"asking {', '.join(names)} …")
    found: list[JobState] = []
    failed: dict[str, HostkitError] = {}
    with ThreadPoolExecutor(min(AT_ONCE, len(names))) as pool:
        asked = {name: pool.submit(ask_one, name) for name in names}
        for name, future in asked.items():
            try:
                found += future.result()
            except HostkitError as error:
                failed[name] = error
    return found, failed


TASKS = [job_list, job_log, job_cancel]
