"""End a job by its recorded identity, with the runs on its machine observed before and after."""

from __future__ import annotations

from dataclasses import dataclass
from getpass import getuser
from socket import gethostname
from typing import TYPE_CHECKING

from hostkit.inventory.models import Inventory
from hostkit.jobs.guard import check, protect
from hostkit.jobs.lookup import launcher_of
from hostkit.jobs.models import JobState
from hostkit.journal import Journal
from hostkit.liveness.observe import observe_all
from hostkit.liveness.verdict import Verdict
from hostkit.plan import Effect, Plan, PlanStep

if TYPE_CHECKING:
    from hostkit.liveness.status import TrainStatus
    from hostkit.transport.connections import Connections


@dataclass(frozen=True)
class Cancelled:
    """How the job ended; the runs that are another process now, and those of which that is not known."""

    job: JobState
    changed: list[str]
    unknown: list[str]


class Cancel:
    """One cancel: `plan` is checked when it is made, `run` carries it out."""

    def __init__(self, connections: Connections, inventory: Inventory, job: JobState) -> None:
        self._connections = connections
        self._inventory = inventory
        self.job = job
        self.plan = plan_cancel(job)
        self._before = self._runs_beside()
        check(self.plan, protect(inventory, self._before))

    def run(self) -> Cancelled:
        job, journal = self.job, Journal()
        if not job.terminal:  # recorded before it is done: a command may be cut in between
            journal.record("job-cancel", host=job.host, job=job.job)
        launcher = launcher_of(self._connections, self._inventory, job.host)
        ended = launcher.cancel(job.attempt_id, by=f"{getuser()}@{gethostname()}")
        journal.record("job-cancelled", host=job.host, job=job.job, state=ended.state, reason=ended.reason)
        changed, unknown = compare_runs(self._before, self._runs_beside())
        return Cancelled(ended, changed, unknown)

    def _runs_beside(self) -> list[TrainStatus]:
        """Observe the runs on the job's machine."""
        protected = protect(self._inventory)
        machine = protected.machine(self.job.host)
        names = [run.name for run in protected.runs if run.machine == machine]
        return observe_all(self._connections, self._inventory, names)


def plan_cancel(job: JobState) -> Plan:
    """Return what cancelling a job does: nothing, where it has ended."""
    if job.terminal:
        step = PlanStep(name="cancel", host=job.host, summary=f"nothing: it is {job.state}")
    else:
        signals = [Effect.signals(job.host, identity) for identity in job.processes]
        step = PlanStep(
            name="cancel",
            host=job.host,
            summary=f"end job {job.job} by its recorded identity",
            effects=(Effect.writes(job.host, job.path), *signals),
        )
    return Plan(title=f"cancel job {job.job}", steps=(step,))


def compare_runs(before: list[TrainStatus], after: list[TrainStatus]) -> tuple[list[str], list[str]]:
    """Say which runs are another process than before, and of which that is not known."""
    changed, unknown = [], []
    for was, now in zip(before, after, strict=True):
        how = f"{_process(was)} before, {_process(now)} after"
        if Verdict.UNKNOWN in (was.verdict, now.verdict):
            unknown.append(f"run {was.run}: not known whether it is the same process: {how}")
        elif was.identity != now.identity:
            changed.append(f"run {was.run}: {how}")
    return changed, unknown


def _process(status: TrainStatus) -> str:
    return f"{status.verdict}, pid {status.identity.pid}" if status.identity else status.verdict
