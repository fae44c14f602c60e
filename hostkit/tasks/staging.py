"""`stage` brings a checkpoint to where it is read."""

from __future__ import annotations

import posixpath
import re
from functools import partial
from typing import TYPE_CHECKING, Any

from hostkit.tasks.command import Outcome, Session, command

if TYPE_CHECKING:
    from collections.abc import Callable

    from hostkit.checkpoints import Candidate, Choice
    from hostkit.liveness.status import TrainStatus
    from hostkit.staging.models import StagePlan
    from hostkit.staging.timing import Expected
    from hostkit.staging.transfer_route import By

GOING = "a running copy will finish, an interrupted one cannot resume"


@command(
    "stage",
    help={
        "run": "the run whose checkpoint is staged (default: that of --eval, else the only one)",
        "eval": "the evaluation it is staged for: says to which host and folder (default: the only one of the run)",
        "step": "the step (default: the newest complete one of the live attempt)",
        "to": "the host that it is staged to, instead of the evaluation's",
        "folder": "the folder there (default: `staged` in the evaluation's workspace)",
        "full": "the whole checkpoint by rsync (default: only what an evaluation needs, where that saves bytes)",
        "by": "which host starts the copy: pull (the destination), push (the source), relay (through this machine), "
        "auto (default: pull, else push, by what works; never relay)",
        "keep": "remove older staged checkpoints of the run beyond the newest N there (default: 3 in the evaluation's "
        "folder; with --folder none)",
        "rate": "bytes a second at most, such as 50MB (default: as fast as idle priority gives)",
    },
    positional=("run",),
    examples=("stage --dry-run", "stage drafter --step 4000 --to ct129 --folder /root/checkpoints"),
    acts=True,
    multiplexed=True,
)
def stage(
    session: Session,
    *,
    run: str | None = None,
    eval: str | None = None,
    step: str | None = None,
    to: str | None = None,
    folder: str | None = None,
    full: bool = False,
    by: str = "auto",
    keep: str | None = None,
    rate: str | None = None,
) -> Outcome:
    """Copy a checkpoint to where it is read: verified at the destination, then renamed into place.

    Run the same command to resume an interrupted copy; a checkpoint that is staged already is verified again.
    """
    number, limit, carrier = None if step is None else _step(step), _rate(rate), _by(by)
    staged_kept = _keep(keep, named=folder is not None)
    run, host, where = _destination(session, run, eval, to, folder)
    source = session.inventory.runs[run].host
    session.connections.preconnect(source, host)

    from hostkit.evals.finding import choice_of
    from hostkit.journal import Journal
    from hostkit.liveness.observe import observe
    from hostkit.report.copying import Copying
    from hostkit.staging.plan import plan_stage
    from hostkit.staging.stage import stage as execute
    from hostkit.staging.timing import RouteRates
    from hostkit.staging.transfer_route import find_way

    session.say(f"looking at {run} …")
    way = find_way(session.connections, session.inventory, source, host, carrier)
    status = observe(session.connections, session.inventory, run)
    plan_of = partial(
        plan_stage,
        session.connections,
        session.inventory,
        run,
        dest_host=host,
        dest_dir=where,
        method="full" if full else "auto",
        rate=limit,
        keep=staged_kept,
        by=carrier,
        way=way,
    )
    chosen, choice, plan = _of_a_whole_one(status, choice_of(status), number, plan_of)
    if number is None:
        for one in choice.passed_over:
            session.say(f"step {one.candidate.step} was passed over: {one.why}")
    _guard(session, plan, status)
    going = _goes_next(session, status, choice, chosen)
    if going:
        session.say(f"the trainer deletes step {chosen.step} at its next save; {GOING}")
    rates = RouteRates()
    expected = rates.expect(plan)
    if session.dry_run:
        return _planned(plan, expected, going)
    journal = Journal()
    journal.record(  # before it: a command may be cut amid it
        "stage",
        host=host,
        run=run,
        step=chosen.step,
        source=plan.source,
        path=plan.path,
        bytes=plan.need,
        by=plan.by,
    )
    if expected.seconds is not None:
        session.say(f"expected: {expected.words}")
    with Copying(session.say) as progress:
        staged = execute(
            session.connections,
            session.inventory,
            run,
            chosen,
            host,
            where,
            plan=plan,
            progress=None if session.quiet else progress,
            poll=progress.every,
        )
    rates.remember(plan, staged)
    document = {"schema": "hostkit.staged-result/1", "run": run} | staged.model_dump(mode="json")

    def render(console: Any) -> None:
        from hostkit.report.checkpoints import show_staged

        show_staged(console, staged)

    return Outcome(document, render=render)


def _of_a_whole_one(
    status: TrainStatus, choice: Choice, step: int | None, plan_of: Callable[[Candidate], StagePlan]
) -> tuple[Candidate, Choice, StagePlan]:
    """Return the plan for the step that was asked for; else for the newest that a closer look finds whole too.

    Raises UsageError, DataError where there is none.
    """
    from hostkit.checkpoints import choose_step
    from hostkit.errors import DataError
    from hostkit.evals.finding import choice_of

    if step is not None:
        chosen = choose_step([one.candidate for one in choice.ranked], step)
        return chosen, choice, plan_of(chosen)
    doubted: dict[str, str] = {}
    while choice.chosen is not None:
        chosen, plan = choice.chosen, plan_of(choice.chosen)
        if plan.contents.complete:
            return chosen, choice, plan
        doubted[chosen.path] = plan.contents.reason or "no reason given"
        choice = choice_of(status, doubted)
    raise DataError(
        f"run {status.run} has no complete checkpoint",
        where=status.host.name,
        hint="`hostkit checkpoints` says why",
    )


def _step(text: str) -> int:
    from hostkit.errors import UsageError

    digits = text.replace(",", "") if re.fullmatch(r"[0-9]{1,3}(,[0-9]{3})+", text) else text
    if not digits.isascii() or not digits.isdigit() or len(digits) > 18:
        raise UsageError(f"--step {text}: a step is a number, such as 4000")
    return int(digits)


def _keep(text: str | None, *, named: bool) -> int | None:
    """Return how many staged checkpoints stay; None: all, as in a folder that somebody named."""
    from hostkit.errors import UsageError
    from hostkit.staging.plan import KEEP

    if text is None:
        return None if named else KEEP
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) < 1:
        raise UsageError(f"--keep {text}: a number of checkpoints, 1 or more")
    return int(text)


def _rate(text: str | None) -> int | None:
    from hostkit.errors import UsageError
    from hostkit.inventory.units import size_bytes

    if text is None:
        return None
    try:
        return size_bytes(text)
    except ValueError as error:
        raise UsageError(f"--rate: {error}") from error


def _by(text: str) -> By:
    from hostkit.errors import UsageError

    for one in ("auto", "pull", "push", "relay"):
        if text == one:
            return one
    raise UsageError(f"--by {text}: one of auto, pull, push, relay")


def _destination(
    session: Session, run: str | None, wanted: str | None, to: str | None, folder: str | None
) -> tuple[str, str, str]:
    """Return run, host and folder, from what was given and what the inventory says."""
    from hostkit.errors import UsageError
    from hostkit.evals.request import WorkspacePaths

    evals = session.inventory.evals
    if wanted is None and run is not None and run not in session.inventory.runs and run in evals:
        wanted, run = run, None
    if wanted is None:
        run = session.choose_run(run)
        mine = [name for name, one in evals.items() if one.run == run and to in (None, one.host)]
        wanted = mine[0] if len(mine) == 1 else None
        if len(mine) > 1 and (to is None or folder is None):
            raise UsageError(
                f"which of the evaluations of {run}?", hint="--eval with one of: " + ", ".join(mine)
            )
    chosen = evals[session.choose_eval(wanted)] if wanted is not None else None
    if chosen is not None and run is not None and chosen.run != run:
        raise UsageError(f"evaluation {wanted} is of run {chosen.run}, not of {run}")
    host = to or (chosen.host if chosen else None)
    if host is None:
        raise UsageError(f"to which host? no evaluation of {run} says so", hint="--to HOST --folder /…")
    if host not in session.inventory.hosts:
        raise UsageError(
            f"no host {host!r} in the inventory", hint="hosts: " + ", ".join(session.inventory.hosts)
        )
    if folder is None and chosen is not None and chosen.host == host:
        folder = WorkspacePaths(chosen.workspace).staged
    if folder is None or not folder.startswith("/"):
        raise UsageError(f"into which folder on {host}?", hint="--folder with an absolute path there")
    return run or (chosen.run if chosen else ""), host, posixpath.normpath("/" + folder.lstrip("/"))


def _goes_next(session: Session, status: TrainStatus, choice: Choice, chosen: Candidate) -> bool | None:
    """Whether the trainer removes it at its next save; None where nothing says what it keeps."""
    from hostkit.checkpoints.retention import goes_next, retention_of

    argv = status.processes[0].argv if status.identity is not None else ()
    retention = retention_of(session.inventory.runs[status.run].checkpoints, argv)
    if retention is None:
        return None
    going = goes_next((one.candidate for one in choice.ranked), retention, status.step.next_save)
    return chosen.path in {one.path for one in going}


def _guard(session: Session, plan: StagePlan, status: TrainStatus) -> None:
    from hostkit.jobs.guard import protect
    from hostkit.jobs.locations import guard
    from hostkit.plan import Plan

    made = Plan(title=f"stage step {plan.step} of {plan.run}", steps=(plan.step_of_plan(),))
    inventory = session.inventory
    guard(session.connections, inventory, made, protect(inventory, [status]), runs=[plan.run])


def _planned(plan: StagePlan, expected: Expected, going: bool | None) -> Outcome:
    from hostkit.plan import Plan

    obstacles = plan.obstacles()
    made = Plan(title=f"stage step {plan.step} of {plan.run}", steps=(plan.step_of_plan(),))
    document = made.document() | {
        "stage": plan.model_dump(
            mode="json", exclude={"contents": True, "names": True, "selection": {"pieces", "summed"}}
        )
        | {"path": plan.path, "need": plan.need, "obstacles": [error.document() for error in obstacles]}
        | {"expected": expected.model_dump(mode="json"), "next_to_go": going}
    }

    def render(console: Any) -> None:
        from hostkit.report.checkpoints import show_plan

        show_plan(console, plan, expected)

    return Outcome(document, exit=obstacles[0].exit_code if obstacles else 0, render=render)


TASKS = [stage]
