"""`checkpoints` lists a run's checkpoints, the latest and why; `stage` brings one to where it is read."""

from __future__ import annotations

import posixpath
import time
from typing import TYPE_CHECKING, Any

from hostkit.tasks.command import Outcome, Session, command

if TYPE_CHECKING:
    from hostkit.checkpoints import Candidate, Choice, StagePlan
    from hostkit.checkpoints.ways import By
    from hostkit.liveness.status import TrainStatus

TOLD_EVERY = 5.0  # seconds between two lines of progress
LOOKED_INTO = 8  # checkpoints of a list, the newest complete ones, whose contents are told as well


@command("checkpoints", help={"run": "the run's name in the inventory (default: the only one)"})
def checkpoints(session: Session, run: str | None = None) -> Outcome:
    """List a run's checkpoints: step, size, age, whole or not and why, which one is the latest and why not another.

    Exit code: 0 there is a latest one, 1 there is none, 65 the run's host answered with an error, 69 it
    was not reached.
    """
    name = session.choose_run(run)
    session.say(f"looking at {name} …")
    status, choice = _choose(session, name)
    inside = _inside(session, name, choice)
    document = {
        "schema": "hostkit.checkpoints/1",
        "run": name,
        "host": status.host.name,
        "verdict": status.verdict,
        "live_step": status.step.live,
        "chosen": choice.chosen.model_dump(mode="json") if choice.chosen else None,
        "note": choice.note,
        "checkpoints": [
            one.candidate.model_dump(mode="json")
            | {"age": _age(status, one.candidate), "chosen": one.chosen, "why": one.why}
            | dict(
                zip(
                    ("step_inside", "weights_bytes"),
                    inside.get(one.candidate.path, (None, None)),
                    strict=True,
                )
            )
            for one in choice.ranked
        ],
    }

    def render(console: Any) -> None:
        from hostkit.report.checkpoints import show_choice

        ages = {one.candidate.path: _age(status, one.candidate) for one in choice.ranked}
        show_choice(console, name, status.host.name, status.step.live, choice, ages=ages, inside=inside)

    return Outcome(document, exit=0 if choice.chosen else 1, render=render)


@command(
    "stage",
    help={
        "run": "the run whose checkpoint is staged (default: that of --eval, else the only one)",
        "eval": "the evaluation it is staged for: says to which host and folder (default: the only one of the run)",
        "step": "the step (default: the newest complete one of the live attempt)",
        "to": "the host that it is staged to, instead of the evaluation's",
        "folder": "the folder there (default: `staged` in the evaluation's workspace)",
        "full": "the whole checkpoint by rsync (default: only what an evaluation needs, where that saves bytes)",
        "by": "who carries: pull (the destination), push (the source), relay (through this machine, only when "
        "asked), auto (default: pull, else push, by what works)",
        "rate": "bytes a second at most, such as 50MB (default: as fast as idle priority gives)",
    },
    acts=True,
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
    rate: str | None = None,
) -> Outcome:
    """Copy a checkpoint to where it is read: proven whole there, and under its final name only then.

    The same command again goes on where it was cut, or finds it staged. Example: hostkit stage --dry-run
    """
    from hostkit.checkpoints import choose_step, plan_stage
    from hostkit.checkpoints import stage as execute
    from hostkit.errors import DataError
    from hostkit.journal import Journal

    number, limit, carrier = None if step is None else _step(step), _rate(rate), _by(by)
    run, host, where = _destination(session, run, eval, to, folder)
    session.say(f"looking at {run} …")
    status, choice = _choose(session, run)
    chosen = (
        choose_step([one.candidate for one in choice.ranked], number) if number is not None else choice.chosen
    )
    if chosen is None:
        raise DataError(
            f"run {run} has no complete checkpoint",
            where=status.host.name,
            hint="`hostkit checkpoints` says why",
        )
    if number is None:
        for one in choice.passed_over:
            session.say(f"step {one.candidate.step} was passed over: {one.why}")
    plan = plan_stage(
        session.connections,
        session.inventory,
        run,
        chosen,
        host,
        where,
        method="full" if full else "auto",
        rate=limit,
        by=carrier,
    )
    _guard(session, plan, status)
    if session.dry_run:
        return _planned(plan)
    Journal().record(  # before it: a command may be cut amid it
        "stage",
        host=host,
        run=run,
        step=chosen.step,
        source=plan.source,
        path=plan.path,
        bytes=plan.need,
        by=plan.by,
    )
    staged = execute(
        session.connections,
        session.inventory,
        run,
        chosen,
        host,
        where,
        plan=plan,
        progress=_Telling(session),
    )
    document = {"schema": "hostkit.staged-result/1", "run": run} | staged.model_dump(mode="json")

    def render(console: Any) -> None:
        from hostkit.report.checkpoints import show_staged

        show_staged(console, staged)

    return Outcome(document, render=render)


def _step(text: str) -> int:
    from hostkit.errors import UsageError

    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise UsageError(f"--step {text}: a step is a number, such as 4000")
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


def _choose(session: Session, run: str) -> tuple[TrainStatus, Choice]:
    from hostkit.evals.finding import choice_of
    from hostkit.liveness.look import look

    status = look(session.connections, session.inventory, run)
    return status, choice_of(status)


def _inside(session: Session, run: str, choice: Choice) -> dict[str, tuple[int | None, int | None]]:
    """Return step inside and bytes of weights of the newest complete checkpoints, by path."""
    from hostkit.checkpoints import Layout
    from hostkit.checkpoints.reading import summaries

    saved, host = session.inventory.runs[run].checkpoints, session.inventory.runs[run].host
    paths = [one.candidate.path for one in choice.ranked if one.candidate.complete][:LOOKED_INTO]
    if not paths:
        return {}
    python = session.inventory.hosts[host].python
    return summaries(session.connections.transport(host), python, paths, Layout.of(saved))


def _age(status: TrainStatus, one: Candidate) -> float | None:
    """Return a checkpoint's age by the clock of its own host."""
    return next(
        (seen.age for seen in status.checkpoints if (seen.step, seen.path) == (one.step, one.path)), None
    )


def _destination(
    session: Session, run: str | None, wanted: str | None, to: str | None, folder: str | None
) -> tuple[str, str, str]:
    """Return run, host and folder, from what was given and what the inventory says."""
    from hostkit.errors import UsageError
    from hostkit.evals.request import Places

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
        folder = Places(chosen.workspace).staged
    if folder is None or not folder.startswith("/"):
        raise UsageError(f"into which folder on {host}?", hint="--folder with an absolute path there")
    return run or (chosen.run if chosen else ""), host, posixpath.normpath(folder)


def _guard(session: Session, plan: StagePlan, status: TrainStatus) -> None:
    from hostkit.jobs.guard import check, protect
    from hostkit.plan import Plan

    steps = (plan.step_of_plan(),)
    check(
        Plan(title=f"stage step {plan.step} of {plan.run}", steps=steps), protect(session.inventory, [status])
    )


def _planned(plan: StagePlan) -> Outcome:
    from hostkit.plan import Plan

    obstacles = plan.obstacles()
    made = Plan(title=f"stage step {plan.step} of {plan.run}", steps=(plan.step_of_plan(),))
    document = made.document() | {
        "stage": plan.model_dump(
            mode="json", exclude={"contents": True, "names": True, "selection": {"pieces"}}
        )
        | {"path": plan.path, "need": plan.need, "obstacles": [error.document() for error in obstacles]}
    }

    def render(console: Any) -> None:
        from hostkit.report.checkpoints import show_plan

        show_plan(console, plan)

    return Outcome(document, exit=obstacles[0].exit_code if obstacles else 0, render=render)


class _Telling:
    """Says now and then how far a copy is, with its rate and what is left of it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.phase = ""
        self.began = self.told = time.monotonic()
        self.first = 0

    def __call__(self, phase: str, done: int, total: int) -> None:
        from hostkit.liveness.words import age, size

        now = time.monotonic()
        if phase != self.phase:
            self.phase, self.began, self.first = phase, now, done
        elif now - self.told < TOLD_EVERY:
            return
        self.told = now
        words = {"copy": "copied", "wait": "another command copies it; waiting:"}.get(phase)
        if words is None:
            self.session.say(f"proving {size(total)} …")
            return
        rate = (done - self.first) / (now - self.began) if now > self.began else 0.0
        more = f", {size(rate)}/s, {age((total - done) / rate)} to go" if rate > 0 else ""
        self.session.say(f"{words} {size(done)} of {size(total)}{more}")


TASKS = [checkpoints, stage]
