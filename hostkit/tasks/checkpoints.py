"""`checkpoints` lists a run's checkpoints: the latest and why, what the trainer deletes next, the best evaluated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hostkit.tasks.command import Outcome, Session, command

if TYPE_CHECKING:
    from hostkit.checkpoints import Choice

ALL_LINES = 100_000  # of the log's tail, in which a resume may be told of


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
    session.connections.preconnect(session.inventory.runs[name].host)

    from hostkit.evals.overview import overview
    from hostkit.liveness.latest import choice_of
    from hostkit.liveness.observe import observe

    session.say(f"looking at {name} …")
    status = observe(session.connections, session.inventory, name, ALL_LINES)
    choice = choice_of(status)
    inside, torn = _inside(session, name, choice)
    if torn:
        choice = choice_of(status, torn)
    seen = overview(session.inventory, status, choice, inside, status.log.lines)

    def render(console: Any) -> None:
        from hostkit.report.checkpoints import show_overview

        show_overview(console, seen)

    return Outcome(seen.document(), exit=0 if choice.chosen else 1, render=render)


def _inside(
    session: Session, run: str, choice: Choice
) -> tuple[dict[str, tuple[int | None, int | None]], dict[str, str]]:
    """Return step inside and bytes of weights of the complete checkpoints, by path; and why of those that are torn."""
    from hostkit.checkpoints import Layout
    from hostkit.staging.inspect import summaries

    saved, host = session.inventory.runs[run].checkpoints, session.inventory.runs[run].host
    paths = [one.candidate.path for one in choice.ranked if one.candidate.complete]
    if not paths:
        return {}, {}
    python = session.inventory.hosts[host].python
    return summaries(session.connections.transport(host), python, paths, Layout.of(saved))


TASKS = [checkpoints]
