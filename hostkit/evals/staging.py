"""`stage` as one request: to which host and folder, which checkpoint, what stands in the way; then the copy."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from hostkit.checkpoints.choosing import Choice, Ranked, choose_step
from hostkit.checkpoints.models import Candidate
from hostkit.checkpoints.retention import next_deleted, retention_of
from hostkit.errors import DataError, NotWholeError, UsageError
from hostkit.evals.request import WorkspacePaths
from hostkit.inventory.models import Inventory
from hostkit.jobs.guard import protect
from hostkit.jobs.locations import guard
from hostkit.journal import Journal
from hostkit.liveness.latest import choice_of, with_a_whole_checkpoint
from hostkit.liveness.observe import observe
from hostkit.plan import Plan
from hostkit.staging.method import Method
from hostkit.staging.models import StagePlan
from hostkit.staging.plan import KEEP, plan_stage
from hostkit.staging.stage import POLL, Progress, Staged, stage
from hostkit.staging.timing import Expected, RouteRates
from hostkit.staging.transfer_route import By, find_route

if TYPE_CHECKING:
    from hostkit.liveness.status import TrainStatus
    from hostkit.transport.connections import Connections


@dataclass(frozen=True)
class Destination:
    """The run whose checkpoint is staged, and the host and folder that it is staged to."""

    run: str
    host: str
    folder: str

    @classmethod
    def of(
        cls,
        inventory: Inventory,
        choose_run: Callable[[str | None], str],
        choose_eval: Callable[[str | None], str],
        *,
        run: str | None = None,
        evaluation: str | None = None,
        host: str | None = None,
        folder: str | None = None,
    ) -> Destination:
        """Return what was named, completed from the inventory; UsageError where that is ambiguous.

        `choose_run`, `choose_eval`: return the one of that name, or the only one.
        """
        if evaluation is None and run is not None and run not in inventory.runs and run in inventory.evals:
            evaluation, run = run, None
        if evaluation is None:
            run = choose_run(run)
            evaluation = _evaluation_of(inventory, run, host, folder)
        declared = inventory.evals[choose_eval(evaluation)] if evaluation is not None else None
        if declared is not None and run not in (None, declared.run):
            raise UsageError(f"evaluation {evaluation} is of run {declared.run}, not of {run}")
        run = run or (declared.run if declared else "")
        host = host or (declared.host if declared else None)
        if host is None:
            raise UsageError(f"to which host? no evaluation of {run} says so", hint="--to HOST --folder /…")
        if host not in inventory.hosts:
            raise UsageError(
                f"no host {host!r} in the inventory", hint="hosts: " + ", ".join(inventory.hosts)
            )
        if folder is None and declared is not None and declared.host == host:
            folder = WorkspacePaths(declared.workspace).staged
        if folder is None or not folder.startswith("/"):
            raise UsageError(f"into which folder on {host}?", hint="--folder with an absolute path there")
        return cls(run, host, posixpath.normpath("/" + folder.lstrip("/")))


def _evaluation_of(inventory: Inventory, run: str, host: str | None, folder: str | None) -> str | None:
    names = [name for name, own in inventory.evals.items() if own.run == run and host in (None, own.host)]
    if len(names) > 1 and (host is None or folder is None):
        raise UsageError(
            f"which of the evaluations of {run}?", hint="--eval with one of: " + ", ".join(names)
        )
    return names[0] if len(names) == 1 else None


@dataclass(frozen=True)
class PlannedStage:
    """A staging, planned and allowed. `next_deleted`: whether the trainer deletes the source at its next save."""

    plan: StagePlan
    candidate: Candidate
    passed_over: tuple[Ranked, ...]
    next_deleted: bool | None  # None: unknown
    expected: Expected

    def document(self) -> dict[str, Any]:
        """Return the `hostkit.plan/1` document."""
        plan = self.plan
        excluded: dict[str, Any] = {"contents": True, "names": True, "selection": {"pieces", "summed"}}
        staging = plan.model_dump(mode="json", exclude=excluded) | {"path": plan.path, "need": plan.need}
        for name, earlier in (("prunable", "going"), ("via", "carried"), ("via_why", "carried_why")):
            staging[earlier] = staging.pop(name)
        staging |= {
            "obstacles": [error.document() for error in plan.obstacles()],
            "expected": self.expected.model_dump(mode="json"),
            "next_to_go": self.next_deleted,
        }
        return _steps(plan).document() | {"stage": staging}


def plan_staging(
    connections: Connections,
    inventory: Inventory,
    destination: Destination,
    *,
    step: int | None = None,
    method: Method = "auto",
    by: By = "auto",
    rate: int | None = None,
    keep: int | None = KEEP,
) -> PlannedStage:
    """Plan the step that was asked for, else the newest that a closer look finds whole too. Writes nothing.

    Raises UsageError, DataError where there is none, RefusedError where the guard forbids it.
    """
    run, host = destination.run, destination.host
    source = inventory.runs[run].host
    connections.preconnect(source, host)
    route = find_route(connections, inventory, source, host, by)
    status = observe(connections, inventory, run)
    plan_of = partial(
        plan_stage,
        connections,
        inventory,
        run,
        dest_host=host,
        dest_dir=destination.folder,
        method=method,
        rate=rate,
        keep=keep,
        by=by,
        route=route,
    )

    def attempt(doubted: Mapping[str, str]) -> tuple[Choice, Candidate, StagePlan]:
        choice = choice_of(status, doubted)
        if step is not None:
            candidate = choose_step([ranked.candidate for ranked in choice.ranked], step)
            return choice, candidate, plan_of(candidate)
        if choice.chosen is None:
            raise DataError(
                f"run {run} has no complete checkpoint", where=source, hint="`hostkit checkpoints` says why"
            )
        plan = plan_of(choice.chosen)
        if not plan.contents.complete:
            reason = plan.contents.reason or "no reason given"
            raise NotWholeError(choice.chosen.path, reason, host=source)
        return choice, choice.chosen, plan

    choice, candidate, plan = with_a_whole_checkpoint(attempt)
    guard(connections, inventory, _steps(plan), protect(inventory, [status]), runs=[run])
    return PlannedStage(
        plan,
        candidate,
        choice.passed_over if step is None else (),
        _next_deleted(inventory, status, choice, candidate),
        RouteRates().expect(plan),
    )


def _steps(plan: StagePlan) -> Plan:
    return Plan(title=f"stage step {plan.step} of {plan.run}", steps=(plan.step_of_plan(),))


def execute(
    connections: Connections,
    inventory: Inventory,
    planned: PlannedStage,
    *,
    progress: Progress | None = None,
    poll: float = POLL,
) -> Staged:
    """Copy what was planned, with an entry in the journal; remember how long the route took."""
    plan = planned.plan
    Journal().record(  # before it: a command may be cut amid it
        "stage",
        host=plan.destination,
        run=plan.run,
        step=plan.step,
        source=plan.source,
        path=plan.path,
        bytes=plan.need,
        by=plan.by,
    )
    staged = stage(connections, inventory, plan, progress=progress, poll=poll)
    RouteRates().remember(plan, staged)
    return staged


def _next_deleted(
    inventory: Inventory, status: TrainStatus, choice: Choice, candidate: Candidate
) -> bool | None:
    argv = status.processes[0].argv if status.identity is not None else ()
    retention = retention_of(inventory.runs[status.run].checkpoints, argv)
    if retention is None:
        return None
    deleted = next_deleted((ranked.candidate for ranked in choice.ranked), retention, status.step.next_save)
    return candidate.path in {each.path for each in deleted}
