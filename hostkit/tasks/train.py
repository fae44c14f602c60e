"""train-status: is the training alive, and is it getting anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hostkit.errors import UsageError
from hostkit.tasks.command import Outcome, Session, command

if TYPE_CHECKING:
    from rich.console import Console
LINES = 12


@command(
    "train-status",
    help={
        "run": "the run's name in the inventory (default: every run)",
        "lines": "how many of the log's last lines to show (default: 12; none where several runs are shown)",
    },
    positional=("run",),
    examples=("train-status", "train-status drafter --lines 40"),
)
def train_status(session: Session, run: str | None = None, lines: str | None = None) -> Outcome:
    """Show whether each run is alive and progressing: verdict, evidence, step, rate, newest checkpoint.

    With --json, `runs` holds one document per run; for a single run its fields stand at the top too.

    Exit code: 0 well; 1 a warning; 2 a critical finding, or not running, stalled or diverged; 3 unknown.
    """
    if lines is not None and not (lines.isascii() and lines.isdigit() and len(lines) < 10):
        raise UsageError(f"--lines {lines}: must be a number, 0 or more")
    inventory = session.inventory
    names = [session.choose_run(run)] if run or len(inventory.runs) < 2 else list(inventory.runs)
    hosts = list(dict.fromkeys(inventory.runs[name].host for name in names))
    session.say(f"asking {', '.join(hosts)} …")  # before what it needs is imported, which takes a while
    if len(hosts) == 1:
        session.connections.preconnect(*hosts)

    from hostkit.liveness.history import PERSON
    from hostkit.liveness.observe import observe_all
    from hostkit.liveness.verdict import worst

    if not session.json:
        from hostkit.report.console import load

        load()

    shown = LINES if lines is None else int(lines)
    statuses = observe_all(session.connections, inventory, names, shown, reader=PERSON)
    code = worst(status.exit for status in statuses)
    documents = [status.document() for status in statuses]
    several = {"schema": "hostkit.train-statuses/1", "exit": code}
    document = {**(documents[0] if len(documents) == 1 else several), "runs": documents}

    def render(console: Console) -> None:
        from hostkit.report.status import show

        for status in statuses:
            show(console, status, brief=len(statuses) > 1, log=len(statuses) == 1 or lines is not None)

    return Outcome(document=document, exit=code, render=render)


TASKS = [train_status]
