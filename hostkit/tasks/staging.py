"""`stage` brings a checkpoint to where it is read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hostkit.tasks.command import Outcome, Session, command

if TYPE_CHECKING:
    from hostkit.evals.staging import PlannedStage
    from hostkit.staging.transfer_route import By

NEXT_DELETED = "a running copy will finish, an interrupted one cannot resume"


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
    from hostkit.evals.staging import Destination, execute, plan_staging
    from hostkit.report.copying import Copying

    destination = Destination.of(
        session.inventory,
        session.choose_run,
        session.choose_eval,
        run=run,
        evaluation=eval,
        host=to,
        folder=folder,
    )
    options: dict[str, Any] = {
        "step": None if step is None else _step(step),
        "method": "full" if full else "auto",
        "by": _by(by),
        "rate": _rate(rate),
        "keep": _keep(keep, named=folder is not None),
    }
    session.say(f"looking at {destination.run} …")
    planned = plan_staging(session.connections, session.inventory, destination, **options)
    for ranked in planned.passed_over:
        session.say(f"step {ranked.candidate.step} was passed over: {ranked.why}")
    if planned.next_deleted:
        session.say(f"the trainer deletes step {planned.candidate.step} at its next save; {NEXT_DELETED}")
    if session.dry_run:
        return _planned(planned)
    if planned.expected.seconds is not None:
        session.say(f"expected: {planned.expected.words}")
    with Copying(session.say) as progress:
        staged = execute(
            session.connections,
            session.inventory,
            planned,
            progress=None if session.quiet else progress,
            poll=progress.every,
        )
    document = {"schema": "hostkit.staged-result/1", "run": destination.run} | staged.model_dump(mode="json")

    def render(console: Any) -> None:
        from hostkit.report.staging import show_staged

        show_staged(console, staged)

    return Outcome(document, render=render)


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


def _planned(planned: PlannedStage) -> Outcome:
    def render(console: Any) -> None:
        from hostkit.report.staging import show_plan

        show_plan(console, planned.plan, planned.expected)

    obstacles = planned.plan.obstacles()
    return Outcome(planned.document(), exit=obstacles[0].exit_code if obstacles else 0, render=render)


TASKS = [stage]
