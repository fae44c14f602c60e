"""What an evaluation is made of on its host: its two jobs, and the plan of all steps with what they touch. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from hostkit.evals import running
from hostkit.evals.harness import Harness, Preflight
from hostkit.evals.prompts import Prompts
from hostkit.evals.request import Sample, WorkspacePaths
from hostkit.inventory.models import Eval, Host
from hostkit.jobs import JobSpec, plan_launch
from hostkit.plan import Effect, Plan, PlanStep
from hostkit.staging.models import StagePlan


@dataclass(frozen=True)
class Work:
    """One evaluation of one checkpoint. `id`: its evaluation id; `step`: the checkpoint's."""

    name: str
    evaluation: Eval
    host: Host
    sample: Sample
    harness: Harness
    prompts: Prompts
    id: str
    step: int
    archive: str  # the folder that the result is filed in, on `here`
    here: str  # what this machine is called in plans

    @property
    def paths(self) -> WorkspacePaths:
        return WorkspacePaths(self.evaluation.workspace)

    def spec(self, staged: str, ready: Preflight | None, *, one_block: bool = False) -> JobSpec:
        """Return the job on the checkpoint at `staged`; `ready` has computed its memory."""
        out = f"results/{running.RESULT}"  # below the job's folder, which is its working directory
        argv = self.harness.argv(
            self.evaluation,
            self.sample,
            self.prompts,
            checkpoint=staged,
            out=out,
            evaluation_id=self.id,
            one_block=one_block,
        )
        limit = self.evaluation.limits
        return running.spec(
            self.name,
            argv,
            {"id": self.id, "step": self.step, "sample": self.sample.name, "checkpoint": staged},
            running.limits(limit.memory, limit.cpus, limit.wall, ready.peak_bytes if ready else 0),
            kind=running.ONE_BLOCK if one_block else running.WHOLE,
        )

    def plan(self, staging: StagePlan, ready: Preflight | None) -> Plan:
        """Return every step that touches a host."""
        return Plan(
            title=f"eval-latest {self.name}, step {self.step}",
            steps=(
                self.install_step(),
                staging.step_of_plan(),
                self._job_step("one-block", self.spec(staging.path, ready, one_block=True)),
                self._job_step("run", self.spec(staging.path, ready)),
                PlanStep(
                    name="archive",
                    host=self.here,
                    summary="file the result",
                    effects=(Effect.writes(self.here, self.archive),),
                ),
            ),
        )

    def install_step(self) -> PlanStep:
        """Return the step that brings harness and prompts there."""
        host, harness = self.evaluation.host, self.paths.harness
        # the whole workspace: also caches, links and later files in it must not be a run's
        effects = [Effect.reads(host, harness), Effect.writes(host, self.paths.workspace)]
        if self.prompts.data is not None:
            effects.append(Effect.writes(host, self.prompts.folder, size=len(self.prompts.data)))
        return PlanStep(
            name="check-harness",
            host=host,
            summary=f"hash {len(self.harness.files.names)} files on both sides; install what is missing",
            effects=tuple(effects),
        )

    def _job_step(self, name: str, spec: JobSpec) -> PlanStep:
        summary = (
            "one block end to end, before the long work"
            if spec.kind == running.ONE_BLOCK
            else f"evaluate the {self.sample.name} sample"
        )
        step = plan_launch(self.evaluation.host, self.host, spec, summary=summary)
        cache = Effect.writes(self.evaluation.host, self.paths.cache)
        return step.model_copy(update={"name": name, "effects": (*step.effects, cache)})
