"""`checkpoints` lists a run's checkpoints: the latest and why, what the trainer deletes next, the best evaluated."""

from __future__ import annotations

from typing import Any

from hostkit.tasks.command import Outcome, Session, command


@command(
    "checkpoints",
    help={"run": "the run's name in the inventory (default: the only one)"},
    positional=("run",),
    examples=("checkpoints", "checkpoints drafter --json"),
    multiplexed=True,
)
def checkpoints(session: Session, run: str | None = None) -> Outcome:
    """List a run's checkpoints: each with its attempt, whole or not; the latest, the next deleted, the best.

    Exit code: 0 there is a latest one, 1 there is none, 65 the run's host answered with an error, 69 it
    was not reached.
    """
    name = session.choose_run(run)

    from hostkit.evals.overview import overview

    session.say(f"looking at {name} …")
    listed = overview(session.connections, session.inventory, name)

    def render(console: Any) -> None:
        from hostkit.report.checkpoints import show_overview

        show_overview(console, listed)

    return Outcome(listed.document(), exit=0 if listed.chosen else 1, render=render)


TASKS = [checkpoints]
