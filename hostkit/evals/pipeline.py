"""eval-latest: find, verify, check the harness, preflight, stage, one block, run, collect, compare, archive, recheck.

Every step is safe to do again, so a command that was cut goes on when it is given again: what was chosen is
kept in a record, staging and jobs are found by what they are made of, and the archive files whole folders.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hostkit import __version__
from hostkit.checkpoints import Candidate, StagePlan, plan_stage, stage
from hostkit.errors import (
    BusyError,
    CannotCreateError,
    ConfigError,
    DataError,
    HostkitError,
    Interrupted,
    NotWholeError,
    ProtocolError,
    UnreachableError,
)
from hostkit.evals import running
from hostkit.evals.archive import Archive, Entry
from hostkit.evals.filing import Filing
from hostkit.evals.finding import Verified, choose_latest, source_of, verify
from hostkit.evals.harness import Harness, dflash
from hostkit.evals.planning import Work
from hostkit.evals.preflight import Preflight, compare_harness, install_harness, preflight
from hostkit.evals.prompts import Prompts
from hostkit.evals.record import Record, UnderWay
from hostkit.evals.request import Places, Sample, evaluation_id
from hostkit.evals.results import EvalResult
from hostkit.evals.steps import Steps
from hostkit.formatting import size
from hostkit.inventory.models import Inventory
from hostkit.jobs import JobSpec, JobState, Need, Protected, State, check, launch, protect
from hostkit.jobs.lookup import launcher_of
from hostkit.journal import Journal
from hostkit.liveness.observe import observe
from hostkit.plan import Plan
from hostkit.staging.timing import EVENT, took

if TYPE_CHECKING:
    from hostkit.liveness.status import TrainStatus
    from hostkit.transport.connections import Connections

# after these the same command goes on from the record; after any other the next one chooses anew
_GOES_ON = (UnreachableError, ProtocolError, CannotCreateError, BusyError, Interrupted)
_BEFORE_RUN = ("verify", "check-harness", "preflight", "stage", "one-block")


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
    doubted: dict[str, str] = field(
        default_factory=dict
    )  # found not to be whole when read alone: path, reason

    def __post_init__(self) -> None:
        self.evaluation = self.inventory.evals[self.name]
        if self.evaluation.harness != "dflash":
            raise ConfigError(
                "only the bundled harness can be run so far",
                where=f"evals.{self.name}.harness",
                hint="write `harness: dflash`",
            )
        if self.evaluation.target is None:
            raise ConfigError(
                "the bundled harness needs a target",
                where=f"evals.{self.name}",
                hint="write target: {model: /models/...}",
            )
        self.host = self.inventory.hosts[self.evaluation.host]
        self.transport = self.connections.transport(self.evaluation.host)
        self.launcher = launcher_of(self.connections, self.inventory, self.evaluation.host)
        self.places = Places(self.evaluation.workspace)
        self.sample = Sample.of(self.evaluation, quick=self.options.quick)
        self.archive = Archive(self.inventory.archive_folder, self.name)
        self.harness: Harness = dflash()
        self.prompts = Prompts.of(self.evaluation.prompts, self.harness, self.places)
        self.journal = Journal()

    # -- the whole ------------------------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        """Evaluate, or go on where a command was cut; return the `hostkit.eval-latest/1` document."""
        if self.options.dry_run:
            return self._of_a_whole_one(self.plan_only)
        under_way = UnderWay(self.inventory.archive_folder, self.name)
        if self.options.attach:
            followed = under_way.wait(
                lambda words: self.steps.say("find", f"following: {words}"), self.connections.remaining()
            )
            if followed is not None:
                return self._followed(followed)
        with under_way:
            try:
                found = self._of_a_whole_one(lambda: self._run(under_way), under_way.close)
            except _GOES_ON:
                raise
            except HostkitError:
                under_way.close()
                raise
            under_way.close()
            return found

    def _of_a_whole_one(
        self, attempt: Callable[[], dict[str, Any]], forget: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        """Make the attempt; once more with the checkpoint before, where the chosen one proves not to be whole."""
        while True:
            try:
                return attempt()
            except NotWholeError as why:
                if why.path in self.doubted:
                    raise
                self.doubted[why.path] = why.reason
                forget()

    def plan_only(self) -> dict[str, Any]:
        """Look, plan, and touch nothing; return the `hostkit.plan/1` document."""
        status, candidate, _ = self._find(None)
        verified = self._verify(candidate)
        work = self._work(candidate)
        ready = None
        if self._check_harness(install=False):
            ready = self._preflight(work, verified)
        else:
            self.steps.skip("preflight", "it is part of what is still to be installed")
            if self.evaluation.limits.memory is None:
                self._note(["the memory limit shown is the least there is: preflight computes the real one"])
        plan = work.plan(self._plan_stage(candidate, verified), ready)
        check(plan, protect(self.inventory, [status]))
        self.steps.skip_rest("only planned")
        return plan.document() | {"checkpoint": candidate.model_dump(), "notes": self.notes}

    def _run(self, under_way: UnderWay) -> dict[str, Any]:
        status, candidate, record = self._find(self._kept(under_way))
        work = self._work(candidate)
        if record is not None and record.evaluation_id != work.id:
            record = None  # other settings or another harness than when it was cut
        done = self._done(work, record)
        if done is not None:
            why = "this checkpoint and these settings are in the archive; --rerun evaluates again"
            return self._filing().again(done, status, candidate.model_dump(), record, why)
        own = self._own_job(work) if record is None or record.job is None else None
        if record is None:
            record = under_way.write(
                Record(
                    evaluation_id=work.id,
                    started_at=_now(),
                    pid=os.getpid(),
                    candidate=candidate.model_dump(),
                    sample=self.sample.name,
                    notes=self.notes,
                    verdict_before=status.document(),
                    rerun=self.options.rerun,
                )
            )
        else:
            record = under_way.write(record.model_copy(update={"pid": os.getpid()}))
        self._note(record.notes)
        self._journal("eval-latest", eval=self.name, step=candidate.step, id=work.id)
        if record.job is None and own is not None and record.staged is not None:
            record = under_way.write(record.model_copy(update={"step": "run", "job": own.attempt_id}))
        if record.job is None:
            record = self._prepare(under_way, record, work, candidate, status)
        else:
            for step in _BEFORE_RUN:
                self.steps.skip(step, "done before the command was cut")
        result, log, state = self._payload(under_way, record)
        return self._filing().file(
            under_way, record, result, log, provenance=self._provenance(record, candidate, state)
        )

    # -- where it stands ------------------------------------------------------------------------------------

    def _kept(self, under_way: UnderWay) -> Record | None:
        """Return the record of a command that was cut, if this one is to go on with it."""
        kept = under_way.read()
        if kept is None or kept.sample != self.sample.name or (self.options.rerun and not kept.rerun):
            return None
        return kept

    def _done(self, work: Work, record: Record | None) -> Entry | None:
        """Return the archived result, where no other is to be made."""
        if record is not None and record.archived is not None:
            return next((e for e in self.archive.entries()[0] if str(e.folder) == record.archived), None)
        if self.options.rerun or (record is not None and record.rerun):
            return None
        return self.archive.with_id(work.id)

    def _own_job(self, work: Work) -> JobState | None:
        """Return this evaluation's own job where it runs: it was launched just before a command was cut.

        Raises BusyError beside another evaluation of the same name, which another machine has begun: its harness
        must not be exchanged, nor its memory taken.
        """
        own = None
        for job in self.launcher.list_jobs():
            spec = job.spec
            if spec is None or spec.kind not in (running.WHOLE, running.ONE_BLOCK) or spec.name != self.name:
                continue
            if job.state is not State.RUNNING:
                continue
            if spec.inputs.get("id") != work.id:
                raise BusyError(
                    f"another evaluation of {self.name} runs there: step {spec.inputs.get('step')}, job {job.job}",
                    where=self.evaluation.host,
                    hint=f"wait, or `hostkit job-cancel {job.attempt_id} --host {self.evaluation.host}`",
                )
            own = job if spec.kind == running.WHOLE else own
        return own

    # -- the steps ------------------------------------------------------------------------------------------

    def _find(self, kept: Record | None) -> tuple[TrainStatus, Candidate, Record | None]:
        with self.steps.running("find") as step:
            status = observe(self.connections, self.inventory, self.evaluation.run)
            if kept is not None:
                candidate = Candidate.model_validate(kept.candidate)
                step.words = f"going on with step {candidate.step}, begun {kept.started_at}"
                newer = [one.step for one in status.checkpoints if one.newest and one.step > candidate.step]
                self._note(
                    f"step {one} has landed since; give the command again to evaluate it" for one in newer
                )
                return status, candidate, kept
            chosen = choose_latest(status, self.doubted)
            self._note(chosen.notes)
            live = f", the run is at step {status.step.live}" if status.step.live is not None else ""
            step.words = f"step {chosen.candidate.step}{live}"
            return status, chosen.candidate, None

    def _verify(self, candidate: Candidate) -> Verified:
        with self.steps.running("verify") as step:
            found = verify(self.connections, self.inventory, self.evaluation.run, candidate)
            self._note(found.fit.notes)
            step.words = found.words
            return found

    def _check_harness(self, *, install: bool) -> bool:
        """Return whether harness and prompts are there as they should be; `install` makes them so."""
        with self.steps.running("check-harness") as step:
            folder = self.places.harness
            found = compare_harness(
                self.transport, self.host, self.harness, folder, update=self.options.update_harness
            )
            wanted, step.words = found.wanted, found.words
            if found.others:
                self._note(
                    [
                        f"beside the harness lies what is not ours, and may be imported: {', '.join(found.others)}"
                    ]
                )
            prompts = self.prompts.there(self.transport, self.host)
            if not install:
                return prompts and not wanted
            if wanted:
                self._journal("install", folder=folder, files=list(wanted))
                install_harness(self.transport, self.host, self.harness, folder, wanted)
                step.words = step.words.replace("to install", "installed")
            if not prompts:
                self._journal("install", folder=self.prompts.folder, files=[self.prompts.path])
                self.prompts.install(self.transport, self.host)
            return True

    def _preflight(self, work: Work, verified: Verified) -> Preflight:
        with self.steps.running("preflight") as step:
            ready = preflight(self.transport, self.evaluation, work.flags, verified.config)
            step.words = ready.words
            return ready

    def _prepare(
        self, under_way: UnderWay, record: Record, work: Work, candidate: Candidate, status: TrainStatus
    ) -> Record:
        """Everything before the payload runs: verify, harness, preflight, plan and guard, stage, one block."""
        protected = protect(self.inventory, [status])
        verified = self._verify(candidate)
        check(Plan(title="harness", steps=(work.install_step(),)), protected)
        self._check_harness(install=True)
        ready = self._preflight(work, verified)
        staging = self._plan_stage(candidate, verified)
        plan = work.plan(staging, ready)
        check(plan, protected)
        record = under_way.write(
            record.model_copy(update={"plan": plan.document(), "step": "stage", "notes": self.notes})
        )
        with self.steps.running("stage") as step:
            self._journal("stage", source=staging.source, path=staging.path, bytes=staging.need)
            staged = stage(
                self.connections,
                self.inventory,
                self.evaluation.run,
                candidate,
                self.evaluation.host,
                self.places.staged,
                plan=staging,
                progress=lambda phase, here, of: self.steps.say("stage", _staging_words(phase, here, of)),
            )
            lasted = took(staging, staged)
            if lasted is not None:
                self.journal.record(EVENT, **lasted)  # what the next staging's time is foretold from
            how = (
                "staged before" if staged.reused else f"{size(staged.bytes)} over {' → '.join(staging.hops)}"
            )
            step.words = f"{how}, sha256 {staged.sha256[:12]}…"
        record = under_way.write(
            record.model_copy(update={"step": "one-block", "staged": staged.model_dump(mode="json")})
        )
        with self.steps.running("one-block") as step:
            state = self._launch(work.spec(staged.path, ready, one_block=True), ready, protected)
            self._follow("one-block", state)
            step.words = "one block works end to end"
        state = self._launch(work.spec(staged.path, ready), ready, protected, again=record.rerun)
        return under_way.write(record.model_copy(update={"step": "run", "job": state.attempt_id}))

    def _launch(
        self, spec: JobSpec, ready: Preflight, protected: Protected, *, again: bool = False
    ) -> JobState:
        beside = protected.role(self.evaluation.host) is not None
        self._journal("launch", job=spec.id, kind=spec.kind, argv=list(spec.argv))
        return launch(
            self.launcher,
            spec,
            again=again,
            need=Need(
                memory_bytes=spec.limits.memory_bytes or 0,
                disk={self.places.cache: ready.disk_bytes},
                disk_reserve_bytes=2 * running.DISK_RESERVE,
            ),
            beside_run=beside and not self.options.yes,
        )

    def _follow(self, step: str, state: JobState) -> JobState:
        return running.follow(
            self.launcher,
            state,
            lambda words: self.steps.say(step, words),
            timeout=self.connections.remaining(),
        )

    def _payload(self, under_way: UnderWay, record: Record) -> tuple[EvalResult, bytes, JobState]:
        """Follow the job, and bring back what it made."""
        assert record.job is not None and record.staged is not None
        with self.steps.running("run") as step:
            state = self.launcher.inspect(record.job)
            step.words = f"job {state.job}"
            run_host = self.inventory.runs[self.evaluation.run].host
            if run_host != self.evaluation.host:  # which may be asked again in hours
                self.connections.close_multiplexer(run_host)
            state = self._follow("run", state)
            step.words = f"job {state.job} done"
        under_way.write(record.model_copy(update={"step": "collect"}))
        with self.steps.running("collect") as step:
            result, log = running.collect(self.launcher, state, record.evaluation_id, record.staged["sha256"])
            step.words = f"{result.coverage.blocks} blocks of {result.coverage.prompts_done} prompts"
        return result, log, state

    def _followed(self, record: Record) -> dict[str, Any]:
        """Return what the command that was followed has made."""
        entry = self.archive.with_id(record.evaluation_id)
        if entry is None:
            raise DataError(
                "the evaluation that was followed has left no result",
                where=str(self.archive.folder),
                hint="the same command without --attach goes on with it, or says what is wrong",
            )
        with self.steps.running("find") as step:
            status = observe(self.connections, self.inventory, self.evaluation.run)
            step.words = f"step {record.candidate['step']}, by the command that was followed"
        return self._filing().again(
            entry, status, record.candidate, record, "done by the command that was followed"
        )

    # -- what the steps are made of -------------------------------------------------------------------------

    def _work(self, candidate: Candidate) -> Work:
        source = source_of(self.inventory.runs[self.evaluation.run].host, candidate)
        this = evaluation_id(
            self.name, self.evaluation, self.sample, source, self.harness.hashes, self.prompts.sha256
        )
        return Work(
            name=self.name,
            evaluation=self.evaluation,
            host=self.host,
            sample=self.sample,
            harness=self.harness,
            prompts=self.prompts,
            id=this,
            step=candidate.step,
        )

    def _plan_stage(self, candidate: Candidate, verified: Verified) -> StagePlan:
        return plan_stage(
            self.connections,
            self.inventory,
            self.evaluation.run,
            candidate,
            self.evaluation.host,
            self.places.staged,
            contents=verified.contents,
        )

    def _filing(self) -> Filing:
        return Filing(
            connections=self.connections,
            inventory=self.inventory,
            name=self.name,
            archive=self.archive,
            sample=self.sample.name,
            steps=self.steps,
            notes=self.notes,
            ignore_run=self.options.ignore_run,
        )

    def _provenance(self, record: Record, candidate: Candidate, state: JobState) -> dict[str, Any]:
        return {
            "schema": "hostkit.eval-provenance/1",
            "hostkit": __version__,
            "eval": self.name,
            "run": self.evaluation.run,
            "source": source_of(self.inventory.runs[self.evaluation.run].host, candidate),
            "staged": record.staged,
            "harness": self.harness.hashes,
            "prompts_sha256": self.prompts.sha256,
            "job": state.document(),
            "notes": self.notes,
        }

    def _note(self, notes: Iterable[str]) -> None:
        self.notes += [note for note in notes if note not in self.notes]

    def _journal(self, event: str, **fields: Any) -> None:
        """Write down what is about to be done on the evaluation host: before it, since a command may be cut amid it."""
        self.journal.record(event, host=self.evaluation.host, **fields)


def _staging_words(phase: str, here: int, of: int) -> str:
    word = {"copy": "copying", "wait": "another command copies it", "prove": "proving"}.get(phase, phase)
    return f"{word}, {size(here)} of {size(of)}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
