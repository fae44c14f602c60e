"""Everything before the payload runs: verify, check the harness, preflight, plan and guard, stage, try one block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hostkit.checkpoints import Candidate
from hostkit.evals import running
from hostkit.evals.collaborators import Collaborators
from hostkit.evals.finding import Verified
from hostkit.evals.harness import Preflight
from hostkit.evals.planning import Work
from hostkit.evals.record import Record
from hostkit.evals.steps import Steps
from hostkit.formatting import size
from hostkit.inventory.models import Inventory
from hostkit.jobs import JobSpec, JobState, Need, Protected, check, launch, protect
from hostkit.plan import Plan

if TYPE_CHECKING:
    from hostkit.liveness.status import TrainStatus

STEPS = ("verify", "check-harness", "preflight", "stage", "one-block")
_PHASES = {"copy": "copying", "wait": "another command copies it", "prove": "verifying"}


class Preparation:
    """Brings one checkpoint and the harness to the evaluation host, and starts the job."""

    def __init__(
        self,
        collaborators: Collaborators,
        inventory: Inventory,
        work: Work,
        steps: Steps,
        *,
        update_harness: bool,
        without_isolation: bool,
    ) -> None:
        self._with = collaborators
        self._inventory = inventory
        self._work = work
        self._steps = steps
        self._update_harness = update_harness
        self._without_isolation = without_isolation
        self._host = work.evaluation.host

    def plan_only(self, candidate: Candidate, status: TrainStatus) -> Plan:
        """Return the plan, checked by the guard; nothing is written."""
        verified = self._verify(candidate)
        ready = None
        if self._check_harness(install=False):
            ready = self._preflight(verified)
        else:
            self._steps.skip("preflight", "it is part of what is still to be installed")
            if self._work.evaluation.limits.memory is None:
                self._steps.note(
                    ["the memory limit shown is the least possible one: preflight computes the real one"]
                )
        plan = self._work.plan(self._with.plan_stage(candidate, verified), ready)
        self._with.guard(plan, protect(self._inventory, [status]))
        return plan

    def start(self, record: Record, candidate: Candidate, status: TrainStatus) -> Record:
        """Do all of it and start the job; return the record that names it."""
        protected = protect(self._inventory, [status])
        verified = self._verify(candidate)
        staging = self._with.plan_stage(candidate, verified)
        self._with.guard(self._work.plan(staging, None), protected)  # before anything is written
        self._check_harness(install=True)
        ready = self._preflight(verified)
        plan = self._work.plan(staging, ready)
        check(plan, protected)
        record = self._keep(record, plan=plan.document(), step="stage", notes=self._steps.notes)
        with self._steps.running("stage") as step:
            self.record_action("stage", source=staging.source, path=staging.path, bytes=staging.need)
            staged = self._with.stage(staging, self._say_copied)
            how = (
                "staged before" if staged.reused else f"{size(staged.bytes)} over {' → '.join(staging.hops)}"
            )
            step.message = f"{how}, sha256 {staged.sha256[:12]}…"
        record = self._keep(record, step="one-block", staged=staged.model_dump(mode="json"))
        with self._steps.running("one-block") as step:
            spec = self._work.spec(staged.path, ready, one_block=True)
            self.follow("one-block", self._launch(spec, ready, protected))
            step.message = "one block works end to end"
        state = self._launch(self._work.spec(staged.path, ready), ready, protected, again=record.rerun)
        return self._keep(record, step="run", job=state.attempt_id)

    def follow(self, step: str, state: JobState) -> JobState:
        """Follow a job to its good end, and say how far it is."""
        return running.follow(
            self._with.launcher,
            state,
            lambda message: self._steps.say(step, message),
            self._with.harness.progress,
            timeout=self._with.remaining(),
        )

    def record_action(self, event: str, **fields: object) -> None:
        """Journal what is about to be done on the evaluation host: before it, since a command may be cut."""
        self._with.journal.record(event, host=self._host, **fields)

    def _keep(self, record: Record, **changes: object) -> Record:
        return self._with.lock.write(record.model_copy(update=changes))

    def _verify(self, candidate: Candidate) -> Verified:
        with self._steps.running("verify") as step:
            verified = self._with.verify(candidate)
            self._steps.note(verified.fit.notes)
            step.message = verified.words
            return verified

    def _check_harness(self, *, install: bool) -> bool:
        """Return whether harness and prompts are there as they should be; `install` makes them so."""
        host = self._with.harness_host
        with self._steps.running("check-harness") as step:
            found = host.compare(update=self._update_harness)
            step.message = found.summary
            if found.others:
                self._steps.note(
                    [f"files that are not hostkit's lie beside the harness: {', '.join(found.others)}"]
                )
            prompts = host.prompts_present()
            if not install:
                return prompts and found.ready
            if not found.ready:
                files = [*found.wanted, *found.dropped]
                self.record_action("install", folder=self._work.paths.harness, files=files)
                edited = host.install(found)
                if edited:
                    self._steps.note(
                        [f"edited files of an older hostkit lie beside the harness: {', '.join(edited)}"]
                    )
                step.message = step.message.replace("to install", "installed").replace("to remove", "removed")
            if not prompts:
                self.record_action(
                    "install", folder=self._work.prompts.folder, files=[self._work.prompts.path]
                )
                host.install_prompts()
            return True

    def _preflight(self, verified: Verified) -> Preflight:
        with self._steps.running("preflight") as step:
            ready = self._with.harness_host.preflight(self._work, verified.contents)
            step.message = ready.summary
            return ready

    def _launch(
        self, spec: JobSpec, ready: Preflight, protected: Protected, *, again: bool = False
    ) -> JobState:
        beside = protected.role(self._host) is not None
        self.record_action("launch", job=spec.id, kind=spec.kind, argv=list(spec.argv))
        return launch(
            self._with.launcher,
            spec,
            again=again,
            need=Need(
                memory_bytes=spec.limits.memory_bytes or 0,
                disk={self._work.paths.cache: ready.disk_bytes},
                disk_reserve_bytes=2 * running.DISK_RESERVE,
            ),
            beside_run=beside and not self._without_isolation,
        )

    def _say_copied(self, phase: str, here: int, of: int) -> None:
        self._steps.say("stage", f"{_PHASES.get(phase, phase)}, {size(here)} of {size(of)}")
