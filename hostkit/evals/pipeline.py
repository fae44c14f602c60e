"""eval-latest: find, verify, check the harness, preflight, stage, one block, run, collect, compare, archive, recheck.

Every step is safe to do again, so a command that was cut goes on when it is given again: what was chosen is
kept in a record, staging and jobs are found by what they are made of, and the archive files whole folders.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hostkit.checkpoints import Candidate, StagePlan, plan_stage, stage
from hostkit.errors import BusyError, ConfigError, HostkitError, Interrupted, UnreachableError
from hostkit.evals import running
from hostkit.evals.archive import Archive, Entry, add_later
from hostkit.evals.compare import compare
from hostkit.evals.finding import Verified, choose_latest, source_of, verify
from hostkit.evals.harness import Harness, dflash
from hostkit.evals.preflight import Preflight, preflight, same_harness
from hostkit.evals.prompts import Prompts
from hostkit.evals.record import Record, UnderWay
from hostkit.evals.request import Places, Sample, evaluate_argv, evaluation_id, payload_flags
from hostkit.evals.results import EvalResult, dump
from hostkit.evals.steps import Steps
from hostkit.evals.verdict import document
from hostkit.inventory.models import Inventory
from hostkit.jobs import JobSpec, launch, list_jobs, plan_launch
from hostkit.jobs.guard import Need, Protected, check, protect
from hostkit.journal import Journal
from hostkit.liveness.look import look
from hostkit.plan import Effect, Plan, PlanStep

if TYPE_CHECKING:
    from hostkit.liveness.status import TrainStatus
    from hostkit.transport.connections import Connections


@dataclass(frozen=True)
class Options:
    """What the person asked for."""

    quick: bool = False
    rerun: bool = False
    attach: bool = False
    update_harness: bool = False
    ignore_run: bool = False
    yes: bool = False
    dry_run: bool = False


@dataclass
class Pipeline:
    """One evaluation of a run's latest checkpoint, step by step."""

    connections: Connections
    inventory: Inventory
    name: str
    options: Options
    steps: Steps
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.evaluation = self.inventory.evals[self.name]
        if self.evaluation.harness != "dflash":
            raise ConfigError(
                "only the bundled harness can be run so far",
                where=f"evals.{self.name}.harness",
                hint="write `harness: dflash`",
            )
        if self.evaluation.target is None:
            raise ConfigError("the bundled harness needs a target", where=f"evals.{self.name}.target")
        self.host = self.inventory.hosts[self.evaluation.host]
        self.transport = self.connections.transport(self.evaluation.host)
        self.places = Places(self.evaluation.workspace)
        self.sample = Sample.of(self.evaluation, quick=self.options.quick)
        self.archive = Archive(self.inventory.archive, self.name)
        self.harness: Harness = dflash()
        self.prompts = Prompts.of(self.evaluation.prompts, self.harness, self.places)
        self.journal = Journal()

    # -- the whole ------------------------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        """Evaluate, or go on where a command was cut; return the `hostkit.eval-latest/1` document."""
        if self.options.dry_run:
            return self.plan_only()
        under_way = UnderWay(self.inventory.archive, self.name)
        if self.options.attach:
            under_way.wait(lambda words: self.steps.say("find", f"following: {words}"))
        with under_way:
            try:
                found = self._run(under_way)
            except (UnreachableError, Interrupted):
                raise  # the same command goes on from here
            except HostkitError:
                under_way.close()
                raise
            under_way.close()
            return found

    def plan_only(self) -> dict[str, Any]:
        """Look, plan, and touch nothing; return the `hostkit.plan/1` document."""
        status, candidate, _ = self._find(None)
        verified = self._verify(candidate)
        self._check_harness(install=False)
        ready = None
        if self.steps["check-harness"].words.endswith("equal"):
            ready = self._preflight(verified)
        else:
            self.steps.skip(
                "preflight", "the harness is not there yet; its own preflight computes the memory"
            )
        staging = self._plan_stage(candidate)
        plan = self._plan(staging, self._spec("<staged>", ready, "<evaluation>"))
        check(plan, protect(self.inventory, [status]))
        self.steps.skip_rest("only planned")
        return plan.document() | {"checkpoint": candidate.model_dump(), "notes": self.notes}

    def _run(self, under_way: UnderWay) -> dict[str, Any]:
        kept = under_way.read()
        if kept is not None and (self.options.rerun or kept.sample != self.sample.name):
            kept = None
        status, candidate, record = self._find(kept)
        source = source_of(self.inventory.runs[self.evaluation.run].host, candidate)
        this = evaluation_id(
            self.name, self.evaluation, self.sample, source, self.harness.hashes, self.prompts.sha256
        )
        done = self.archive.with_id(this)
        if done is not None and not self.options.rerun:
            return self._from_archive(done, status, candidate, record)
        if record is None or record.evaluation_id != this:
            record = under_way.write(
                Record(
                    evaluation_id=this,
                    started_at=_now(),
                    pid=os.getpid(),
                    candidate=candidate.model_dump(),
                    sample=self.sample.name,
                    notes=self.notes,
                    verdict_before=status.document(),
                )
            )
        self.notes = list(record.notes)
        self.journal.record(
            "eval-latest", host=self.evaluation.host, eval=self.name, step=candidate.step, id=this
        )
        if record.job is None:
            record = self._prepare(under_way, record, candidate, status)
        else:
            for step in ("verify", "check-harness", "preflight", "stage", "one-block"):
                self.steps.skip(step, "done before the command was cut")
        result, log, state = self._payload(under_way, record)
        return self._finish(under_way, record, candidate, result, log, state)

    # -- the steps ------------------------------------------------------------------------------------------

    def _find(self, kept: Record | None) -> tuple[TrainStatus, Candidate, Record | None]:
        with self.steps.running("find") as step:
            status = look(self.connections, self.inventory, self.evaluation.run)
            if kept is not None:
                candidate = Candidate.model_validate(kept.candidate)
                step.words = f"going on with step {candidate.step}, begun {kept.started_at}"
                newer = [one.step for one in status.checkpoints if one.newest and one.step > candidate.step]
                if newer:
                    self.notes.append(
                        f"step {newer[0]} has landed since; give the command again to evaluate it"
                    )
                return status, candidate, kept
            chosen = choose_latest(status)
            self.notes += chosen.notes
            live = f", the run is at step {status.step.live}" if status.step.live is not None else ""
            step.words = f"step {chosen.candidate.step}{live}"
            return status, chosen.candidate, None

    def _verify(self, candidate: Candidate) -> Verified:
        with self.steps.running("verify") as step:
            found = verify(self.connections, self.inventory, self.evaluation.run, candidate)
            self.notes += [note for note in found.fit.notes if note not in self.notes]
            step.words = found.words
            return found

    def _check_harness(self, *, install: bool) -> None:
        with self.steps.running("check-harness") as step:
            _, step.words = same_harness(
                self.transport,
                self.host,
                self.harness,
                self.places.harness,
                update=self.options.update_harness,
                install=install,
            )
            if install:
                self.prompts.install(self.transport, self.host)

    def _preflight(self, verified: Verified) -> Preflight:
        with self.steps.running("preflight") as step:
            flags = payload_flags(self.evaluation, self.sample, self.prompts.path)
            ready = preflight(self.transport, self.evaluation, flags, verified.config)
            step.words = ready.words
            return ready

    def _prepare(
        self, under_way: UnderWay, record: Record, candidate: Candidate, status: TrainStatus
    ) -> Record:
        """Everything before the payload runs: verify, harness, preflight, plan and guard, stage, one block."""
        protected = protect(self.inventory, [status])
        verified = self._verify(candidate)
        check(Plan(title="harness", steps=(self._harness_step(),)), protected)
        self._check_harness(install=True)
        ready = self._preflight(verified)
        self._nobody_else(record.evaluation_id)
        staging = self._plan_stage(candidate)
        plan = self._plan(staging, self._spec(staging.path, ready, record.evaluation_id))
        check(plan, protected)
        record = under_way.write(record.model_copy(update={"plan": plan.document(), "step": "stage"}))
        with self.steps.running("stage") as step:
            staged = stage(
                self.connections,
                self.inventory,
                self.evaluation.run,
                candidate,
                self.evaluation.host,
                self.places.checkpoints,
                plan=staging,
                progress=lambda phase, here, of: self.steps.say("stage", _staging_words(phase, here, of)),
            )
            how = "staged before" if staged.reused else f"{_size(staged.bytes)} by {' → '.join(staged.route)}"
            step.words = f"{how}, sha256 {staged.sha256[:12]}…"
        smoke = self._spec(staged.path, ready, record.evaluation_id, smoke=True)
        work = self._spec(staged.path, ready, record.evaluation_id)
        record = under_way.write(
            record.model_copy(update={"step": "one-block", "staged": staged.model_dump()})
        )
        with self.steps.running("one-block") as step:
            state = self._launch(smoke, protected)
            running.follow(self.transport, self.host, state, lambda words: self.steps.say("one-block", words))
            step.words = "one block works end to end"
        state = self._launch(work, protected, again=self.options.rerun)
        self.journal.record("launch", host=self.evaluation.host, job=state.job, argv=list(work.argv))
        return under_way.write(record.model_copy(update={"step": "run", "job": state.job}))

    def _launch(self, spec: JobSpec, protected: Protected, *, again: bool = False) -> Any:
        beside = protected.role(self.evaluation.host) is not None
        need = Need(memory_bytes=spec.limits.memory_bytes or 0)
        return launch(
            self.transport,
            self.host,
            spec,
            again=again,
            need=need,
            beside_run=beside and not self.options.yes,
        )

    def _payload(self, under_way: UnderWay, record: Record) -> tuple[EvalResult, bytes, Any]:
        """Follow the job, and bring back what it made."""
        from hostkit.jobs import inspect

        assert record.job is not None and record.staged is not None
        with self.steps.running("run") as step:
            state = inspect(self.transport, self.host, record.job)
            step.words = f"job {state.job}"
            state = running.follow(
                self.transport, self.host, state, lambda words: self.steps.say("run", words)
            )
            step.words = f"job {state.job} done"
        under_way.write(record.model_copy(update={"step": "collect"}))
        with self.steps.running("collect") as step:
            result, log = running.collect(
                self.transport, self.host, state, record.evaluation_id, record.staged["sha256"]
            )
            step.words = f"{result.coverage.blocks} blocks of {result.coverage.prompts_done} prompts"
        return result, log, state

    def _finish(
        self,
        under_way: UnderWay,
        record: Record,
        candidate: Candidate,
        result: EvalResult,
        log: bytes,
        state: Any,
    ) -> dict[str, Any]:
        """Compare, archive, look at the training again."""
        with self.steps.running("compare") as step:
            previous = self.archive.before(result)
            compared = compare(previous.result, result) if previous is not None else None
            step.words = (
                f"with {_label(previous)}: {compared.verdict}" if compared else "the first result here"
            )
        with self.steps.running("archive") as step:
            provenance = {
                "schema": "hostkit.eval-provenance/1",
                "eval": self.name,
                "run": self.evaluation.run,
                "source": source_of(self.inventory.runs[self.evaluation.run].host, candidate),
                "staged": record.staged,
                "harness": self.harness.hashes,
                "prompts_sha256": self.prompts.sha256,
                "job": state.document(),
                "notes": self.notes,
            }
            files = {
                "result.json": dump(result.document()),
                "plan.json": dump(record.plan or {}),
                "provenance.json": dump(provenance),
                "verdict-before.json": dump(record.verdict_before),
                "log.txt": log,
            }
            if compared is not None:
                files["comparison.json"] = dump(compared.document())
            folder = self.archive.add(result, files)
            step.words = str(folder)
        under_way.write(record.model_copy(update={"step": "recheck"}))
        after = self._recheck()
        add_later(folder, "verdict-after.json", dump(after))
        return self._document(Entry(folder, result), previous, candidate, record.verdict_before, after)

    def _recheck(self) -> dict[str, Any]:
        with self.steps.running("recheck") as step:
            after = look(self.connections, self.inventory, self.evaluation.run).document()
            step.words = f"{after['verdict']}" + (
                f", step {after['step']['live']}" if after["step"]["live"] else ""
            )
            return after

    def _from_archive(
        self, entry: Entry, status: TrainStatus, candidate: Candidate, record: Record | None
    ) -> dict[str, Any]:
        """Return a result that is there already; finish its recheck if that was cut."""
        previous = self.archive.before(entry.result)
        before = record.verdict_before if record is not None else status.document()
        self.steps.skip_rest("this checkpoint and these settings are in the archive; --rerun evaluates again")
        after = status.document()
        if not (entry.folder / "verdict-after.json").exists():
            after = self._recheck()
            add_later(entry.folder, "verdict-after.json", dump(after))
        return self._document(entry, previous, candidate, before, after, reused=record is None)

    def _document(
        self,
        entry: Entry,
        previous: Entry | None,
        candidate: Candidate,
        before: dict[str, Any],
        after: dict[str, Any],
        *,
        reused: bool = False,
    ) -> dict[str, Any]:
        return document(
            self.name,
            self.evaluation.run,
            entry,
            previous,
            candidate=candidate.model_dump(),
            sample=self.sample.name,
            before=before,
            after=after,
            steps=self.steps.document(),
            notes=self.notes,
            reused=reused,
            ignore_run=self.options.ignore_run,
        )

    # -- what the steps are made of -------------------------------------------------------------------------

    def _nobody_else(self, this: str) -> None:
        """Refuse to begin beside another evaluation of the same name, begun on another machine."""
        for job in list_jobs(self.transport, self.host):
            same = job.spec is not None and job.spec.kind == "eval" and job.spec.name == self.name
            if same and job.spec is not None and job.state == "running" and job.spec.inputs.get("id") != this:
                raise BusyError(
                    f"another evaluation of {self.name} runs there: step {job.spec.inputs.get('step')}, job {job.job}",
                    where=self.evaluation.host,
                    hint=f"wait, or `hostkit job-cancel --job {job.job} --host {self.evaluation.host}`",
                )

    def _plan_stage(self, candidate: Candidate) -> StagePlan:
        return plan_stage(
            self.connections,
            self.inventory,
            self.evaluation.run,
            candidate,
            self.evaluation.host,
            self.places.checkpoints,
        )

    def _spec(self, staged: str, ready: Preflight | None, this: str, *, smoke: bool = False) -> JobSpec:
        flags = payload_flags(self.evaluation, self.sample, self.prompts.path)
        out = f"results/{running.RESULT}"  # below the job's folder, which is its working directory
        argv = evaluate_argv(self.evaluation, flags, staged, out, this, smoke=smoke)
        limit = self.evaluation.limits
        peak = ready.peak_bytes if ready is not None else 0
        return running.spec(
            self.name,
            argv,
            {"id": this, "sample": self.sample.name, "checkpoint": staged},
            running.limits(limit.memory, limit.cpus, limit.wall, peak),
            kind="eval-one-block" if smoke else "eval",
        )

    def _harness_step(self) -> PlanStep:
        return PlanStep(
            name="check-harness",
            host=self.evaluation.host,
            summary=f"hash {len(self.harness.names)} files on both sides; install what is missing",
            effects=(
                Effect.reads(self.evaluation.host, self.places.harness),
                Effect.writes(self.evaluation.host, self.places.harness),
            ),
        )

    def _plan(self, staging: StagePlan, work: JobSpec) -> Plan:
        cache = Effect.writes(self.evaluation.host, self.places.cache)
        job = plan_launch(
            self.evaluation.host, self.host, work, summary=f"evaluate the {self.sample.name} sample"
        )
        run = job.model_copy(update={"name": "run", "effects": (*job.effects, cache)})
        one = run.model_copy(
            update={"name": "one-block", "summary": "one block end to end, before the long work"}
        )
        return Plan(
            title=f"eval-latest {self.name}, step {staging.step}",
            steps=(self._harness_step(), staging.step_of_plan(), one, run),
        )


def _label(entry: Entry | None) -> str:
    return "nothing" if entry is None else f"step {entry.result.checkpoint.step} of {entry.result.created_at}"


def _staging_words(phase: str, here: int, of: int) -> str:
    word = {"copy": "copying", "wait": "another command copies it", "prove": "proving"}.get(phase, phase)
    return f"{word}, {_size(here)} of {_size(of)}"


def _size(count: int) -> str:
    import humanize

    return humanize.naturalsize(count, binary=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
