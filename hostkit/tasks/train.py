"""train-status: is the training alive, and is it getting anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hostkit.errors import UsageError
from hostkit.tasks.command import Outcome, Session, command

if TYPE_CHECKING:
    from rich.console import Console

    from hostkit.liveness.status import TrainStatus

AT_ONCE = 16  # hosts asked at the same time


@command(
    "train-status",
    help={
        "run": "the run's name in the inventory (default: every run)",
        "lines": "how many of the log's last lines to show (default: 12)",
    },
    positional=("run",),
    examples=("train-status", "train-status drafter --lines 40"),
)
def train_status(session: Session, run: str | None = None, lines: int = 12) -> Outcome:
    """Say of one run, or of all, whether it lives and moves: verdict, evidence, step, rate, newest checkpoint.

    Exit code: 0 well, 1 a finding, 2 not running, stalled, diverged or a grave finding, 3 cannot be told.
    """
    if lines < 0:
        raise UsageError(f"--lines {lines}: no log has less than no lines")
    names = (
        [session.choose_run(run)] if run or len(session.inventory.runs) < 2 else list(session.inventory.runs)
    )
    if len(names) == 1:
        session.connections.preconnect(session.inventory.runs[names[0]].host)

    from hostkit.liveness.verdict import worst

    session.say(f"looking at {', '.join(names)} …")
    statuses = _look_at(session, names, lines)
    code = worst([status.exit for status in statuses])
    if len(statuses) == 1:
        document = statuses[0].document()
    else:
        document = {
            "schema": "hostkit.train-statuses/1",
            "exit": code,
            "runs": [status.document() for status in statuses],
        }

    def render(console: Console) -> None:
        from hostkit.report.status import show

        for status in statuses:
            show(console, status, brief=len(statuses) > 1)

    return Outcome(document=document, exit=code, render=render)


def _look_at(session: Session, names: list[str], lines: int) -> list[TrainStatus]:
    """Look at all runs at the same time; a host that hangs costs its own budget and nobody else's."""
    from concurrent.futures import ThreadPoolExecutor

    from hostkit.liveness.observe import observe

    connections, inventory = session.connections, session.inventory
    if len(names) == 1:
        return [observe(connections, inventory, names[0], lines)]
    with ThreadPoolExecutor(min(AT_ONCE, len(names))) as pool:
        return list(pool.map(lambda name: observe(connections, inventory, name, lines), names))


TASKS = [train_status]
