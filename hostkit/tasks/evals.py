"""eval-latest: how good is the newest checkpoint, against the last one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hostkit.tasks.command import Outcome, Session, command

if TYPE_CHECKING:
    from rich.console import Console


@command(
    "eval-latest",
    help={
        "eval": "the evaluation's name in the inventory (default: the only one)",
        "quick": "fewer blocks of each prompt: the first of the full sample",
        "full": "all blocks of each prompt (the default)",
        "rerun": "evaluate again although the archive has the result",
        "attach": "follow the running evaluation and show its result; start one if none is running",
        "update_harness": "replace harness files that were edited on the host",
        "show_drift": "only print how the harness on the host differs from hostkit's",
        "ignore_run": "ignore the training's state in the exit code",
        "yes": "start even where no CPU isolation beside the run is possible",
    },
    positional=("eval",),
    examples=("eval-latest --dry-run", "eval-latest drafter --quick"),
    acts=True,
    multiplexed=True,
)
def eval_latest(
    session: Session,
    eval: str | None = None,
    quick: bool = False,
    full: bool = False,
    rerun: bool = False,
    attach: bool = False,
    update_harness: bool = False,
    show_drift: bool = False,
    ignore_run: bool = False,
) -> Outcome:
    """Evaluate the newest complete checkpoint without touching the live run, and compare.

    Exit code: 0 done; 1 done, and the result or the training has a problem (it says which); else not done.
    """
    from hostkit.errors import UsageError

    if quick and full:
        raise UsageError("--quick and --full exclude each other")
    name = session.choose_eval(eval)
    if show_drift:
        return _drift(session, name)
    session.connections.preconnect(session.inventory.runs[session.inventory.evals[name].run].host)

    from hostkit.evals.collaborators import Collaborators
    from hostkit.evals.pipeline import Options, Pipeline
    from hostkit.evals.steps import Steps
    from hostkit.report.steps import StepBoard

    board = StepBoard(quiet=session.quiet)
    steps = Steps(watch=board.changed)
    board.steps = steps
    options = Options(
        quick=quick,
        rerun=rerun,
        attach=attach,
        update_harness=update_harness,
        ignore_run=ignore_run,
        yes=session.yes,
        dry_run=session.dry_run,
    )
    collaborators = Collaborators.connect(session.connections, session.inventory, name)
    pipeline = Pipeline(collaborators, session.inventory, name, options, steps)
    with board:
        document = pipeline.run()

    def render(console: Console) -> None:
        if session.dry_run:
            from hostkit.report.plan import show as show_plan

            show_plan(document, console)
        else:
            from hostkit.report.evaluation import show

            show(document, console)

    return Outcome(document=document, exit=document.get("exit", 0), render=render)


def _drift(session: Session, name: str) -> Outcome:
    from hostkit.evals.harness_files import drift
    from hostkit.evals.harnesses import harness_of
    from hostkit.evals.request import WorkspacePaths

    evaluation = session.inventory.evals[name]
    host = session.inventory.hosts[evaluation.host]
    folder = WorkspacePaths(evaluation.workspace).harness
    files = harness_of(session.inventory, name).files
    found = drift(session.connections.transport(evaluation.host), host.python, files, folder)
    document = found.document(evaluation.host, folder)

    def render(console: Console) -> None:
        from hostkit.report.console import remote

        for word in ("changed", "outdated", "missing", "unreadable", "dropped", "others"):
            if document[word]:
                console.print(remote(f"{word}: " + ", ".join(document[word])))
        if found.diff:
            console.print(remote(found.diff), soft_wrap=True)
        if found.none:
            console.print("the harness is the same on both sides")

    return Outcome(document=document, exit=0 if found.none else 1, render=render)


TASKS = [eval_latest]
