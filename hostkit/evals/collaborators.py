"""What an evaluation acts through: the training, the staging, the jobs, the harness on its host, the archive."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from hostkit.checkpoints import Candidate, Contents
from hostkit.evals.archive import Archive
from hostkit.evals.finding import Verified, verify
from hostkit.evals.harness import Harness, Preflight
from hostkit.evals.harness_files import HarnessState, compare_harness, install_harness
from hostkit.evals.harnesses import harness_of
from hostkit.evals.prompts import Prompts
from hostkit.evals.record import EvaluationLock
from hostkit.evals.request import WorkspacePaths
from hostkit.inventory.models import Inventory
from hostkit.jobs import Launcher, Protected
from hostkit.jobs.locations import guard
from hostkit.jobs.lookup import launcher_of
from hostkit.journal import Journal
from hostkit.liveness.observe import observe
from hostkit.plan import Plan
from hostkit.staging.models import StagePlan
from hostkit.staging.plan import plan_stage
from hostkit.staging.stage import Staged, stage
from hostkit.staging.timing import RouteRates

if TYPE_CHECKING:
    from hostkit.evals.planning import Work
    from hostkit.liveness.status import TrainStatus
    from hostkit.transport.connections import Connections

CopyProgress = Callable[[str, int, int], None]  # phase, bytes here, bytes in all


class HarnessHost(Protocol):
    """The harness as it stands on the evaluation host."""

    def compare(self, *, update: bool) -> HarnessState:
        """Compare its files with ours; writes nothing."""
        ...

    def prompts_present(self) -> bool: ...

    def install(self, state: HarnessState) -> tuple[str, ...]:
        """Make the harness what it should be; return the edited files of an older one that stay beside it."""
        ...

    def install_prompts(self) -> None: ...

    def preflight(self, work: Work, contents: Contents) -> Preflight: ...


@dataclass(frozen=True)
class Collaborators:
    """Everything that an evaluation reads or changes outside itself. `connect` makes the real ones."""

    observe: Callable[[], TrainStatus]
    verify: Callable[[Candidate], Verified]
    plan_stage: Callable[[Candidate, Verified], StagePlan]
    stage: Callable[[StagePlan, CopyProgress], Staged]
    guard: Callable[[Plan, Protected], None]
    here: str  # what this machine is called in plans
    launcher: Launcher
    harness: Harness
    prompts: Prompts
    harness_host: HarnessHost
    archive: Archive
    lock: EvaluationLock
    journal: Journal
    release_run_host: Callable[[], None] = lambda: None  # nothing will be asked there for hours
    remaining: Callable[[], float | None] = lambda: None  # seconds of the command's own time
    sleep: Callable[[float], None] = field(default=time.sleep)

    @classmethod
    def connect(cls, connections: Connections, inventory: Inventory, name: str) -> Collaborators:
        """Return those of the evaluation `name`; nothing is asked yet."""
        evaluation = inventory.evals[name]
        run, host = evaluation.run, evaluation.host
        run_host = inventory.runs[run].host
        paths = WorkspacePaths(evaluation.workspace)
        harness = harness_of(inventory, name)
        prompts = harness.prompts(evaluation)

        def copy(plan: StagePlan, progress: CopyProgress) -> Staged:
            staged = stage(connections, inventory, plan, progress=progress)
            RouteRates().remember(plan, staged)
            return staged

        def release_run_host() -> None:
            if run_host != host:
                connections.close_multiplexer(run_host)

        return cls(
            observe=lambda: observe(connections, inventory, run),
            verify=lambda candidate: verify(connections, inventory, run, candidate, harness),
            plan_stage=lambda candidate, verified: plan_stage(
                connections, inventory, run, candidate, host, paths.staged, contents=verified.contents
            ),
            stage=copy,
            guard=lambda plan, protected: guard(connections, inventory, plan, protected, runs=[run]),
            here=connections.this_host(),
            launcher=launcher_of(connections, inventory, host),
            harness=harness,
            prompts=prompts,
            harness_host=_Installed(connections, inventory, name, harness, prompts),
            archive=Archive(inventory.archive_folder, name),
            lock=EvaluationLock(inventory.archive_folder, name),
            journal=Journal(),
            release_run_host=release_run_host,
            remaining=connections.remaining,
        )


class _Installed:
    """See `HarnessHost`."""

    def __init__(
        self, connections: Connections, inventory: Inventory, name: str, harness: Harness, prompts: Prompts
    ) -> None:
        self._evaluation = inventory.evals[name]
        self._host = inventory.hosts[self._evaluation.host]
        self._transport = connections.transport(self._evaluation.host)
        self._harness = harness
        self._prompts = prompts
        self._folder = WorkspacePaths(self._evaluation.workspace).harness

    def compare(self, *, update: bool) -> HarnessState:
        return compare_harness(self._transport, self._host, self._harness.files, self._folder, update=update)

    def prompts_present(self) -> bool:
        return self._prompts.present(self._transport, self._host)

    def install(self, state: HarnessState) -> tuple[str, ...]:
        return install_harness(self._transport, self._host, self._harness.files, self._folder, state)

    def install_prompts(self) -> None:
        self._prompts.install(self._transport, self._host)

    def preflight(self, work: Work, contents: Contents) -> Preflight:
        return self._harness.preflight(
            self._transport, self._evaluation, work.sample, self._prompts, contents
        )
