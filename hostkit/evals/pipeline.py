"""eval-latest: find, verify, check the harness, preflight, stage, one block, run, collect, compare, archive, recheck.

Every step is safe to do again, so a command that was cut goes on when it is given again: what was chosen is
kept in a record, staging and jobs are found by what they are made of, and the archive files whole folders.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hostkit import __version__
from hostkit.checkpoints import Candidate
from hostkit.errors import (
    BusyError,
    CannotCreateError,
    DataError,
    HostkitError,
    Interrupted,
    ProtocolError,
    UnreachableError,
)
from hostkit.evals import preparation, running
from hostkit.evals.archive import Entry
from hostkit.evals.collaborators import Collaborators
from hostkit.evals.filing import ResultFiler
from hostkit.evals.finding import source_of
from hostkit.evals.planning import Work
from hostkit.evals.preparation import Preparation
from hostkit.evals.record import Record
from hostkit.evals.request import Sample, evaluation_id
from hostkit.evals.results import EvalResult
from hostkit.evals.steps import Steps
from hostkit.inventory.models import Inventory
from hostkit.jobs import JobState, State
from hostkit.liveness.latest import choose_latest, with_a_whole_checkpoint

if TYPE_CHECKING:
    from hostkit.liveness.status import TrainStatus

# after these the same command resumes from the record; after any other the next one chooses anew
_RESUMABLE = (UnreachableError, ProtocolError, CannotCreateError, BusyError, Interrupted)


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


class Pipeline:
    """One evaluation of a run's latest checkpoint, step by step."""

    def __init__(
        self, collaborators: Collaborators, inventory: Inventory, name: str, options: Options, steps: Steps
    ) -> None:
        self._with = collaborators
        self.inventory = inventory
        self.name = name
        self.options = options
        self.steps = steps
        self.evaluation = inventory.evals[name]
        self.sample = Sample.of(self.evaluation, quick=options.quick)

    def run(self) -> dict[str, Any]:
        """Evaluate, or resume where a command was cut; return the `hostkit.eval-latest/1` document."""
        if self.options.dry_run:
            return with_a_whole_checkpoint(self._plan_only)
        lock = self._with.lock
        if self.options.attach:
            followed = lock.wait(
                lambda message: self.steps.say("find", f"following: {message}"), self._with.remaining()
            )
            if followed is not None:
                return self._followed(followed)
        with lock:
            try:
                document = with_a_whole_checkpoint(self._evaluate, lock.close)
            except _RESUMABLE:
                raise
            except HostkitError:
                lock.close()
                raise
            lock.close()
            return document

    def _plan_only(self, doubted: Mapping[str, str]) -> dict[str, Any]:
        """Return the `hostkit.plan/1` document; nothing is written."""
        status, candidate, _ = self._find(None, doubted)
        plan = self._preparation(self._work(candidate)).plan_only(candidate, status)
        self.steps.skip_rest("only planned")
        return plan.document() | {"checkpoint": candidate.model_dump(), "notes": self.steps.notes}

    def _evaluate(self, doubted: Mapping[str, str]) -> dict[str, Any]:
        lock = self._with.lock
        status, candidate, record = self._find(self._resumed(), doubted)
        work = self._work(candidate)
        if record is not None and record.evaluation_id != work.id:
            record = None  # other settings or another harness than when it was cut
        archived = self._archived(work, record)
        if archived is not None and (archived.whole or record is not None):
            return self._filer.again(
                archived, status, candidate.model_dump(), record, "in the archive; --rerun evaluates again"
            )
        if archived is not None:
            done, asked = archived.result.coverage.prompts_done, archived.result.coverage.prompts_asked
            self.steps.note([f"the archived result had {done} of {asked} prompts, so this completes it"])
        own = self._own_job(work) if record is None or record.job is None else None
        if record is None:
            record = Record(
                evaluation_id=work.id,
                started_at=_now(),
                pid=os.getpid(),
                candidate=candidate.model_dump(),
                sample=self.sample.name,
                notes=self.steps.notes,
                verdict_before=status.document(),
                rerun=self.options.rerun or archived is not None,
            )
        record = lock.write(record.model_copy(update={"pid": os.getpid()}))
        self.steps.note(record.notes)
        prepare = self._preparation(work)
        prepare.record_action("eval-latest", eval=self.name, step=candidate.step, id=work.id)
        if record.job is None and own is not None and record.staged is not None:
            record = lock.write(record.model_copy(update={"step": "run", "job": own.attempt_id}))
        if record.job is None:
            record = prepare.start(record, candidate, status)
        else:
            for step in preparation.STEPS:
                self.steps.skip(step, "done before the command was cut")
        result, log, state = self._payload(prepare, record)
        provenance = self._provenance(record, candidate, state)
        return self._filer.file(lock, record, result, log, provenance=provenance)

    def _resumed(self) -> Record | None:
        """Return the record of a command that was cut, if this one is to go on with it."""
        kept = self._with.lock.read()
        if kept is None or kept.sample != self.sample.name or (self.options.rerun and not kept.rerun):
            return None
        return kept

    def _archived(self, work: Work, record: Record | None) -> Entry | None:
        """Return the archived result of this work, where no other was asked for."""
        archive = self._with.archive
        if record is not None and record.archived is not None:
            return next(
                (entry for entry in archive.entries()[0] if str(entry.folder) == record.archived), None
            )
        if self.options.rerun or (record is not None and record.rerun):
            return None
        return archive.with_id(work.id)

    def _own_job(self, work: Work) -> JobState | None:
        """Return this evaluation's own job where it runs: it was launched just before a command was cut.

        Raises BusyError beside another evaluation of the same name, which another machine has started: its
        harness must not be exchanged, nor its memory taken.
        """
        own = None
        for job in self._with.launcher.list_jobs():
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

    def _find(
        self, kept: Record | None, doubted: Mapping[str, str]
    ) -> tuple[TrainStatus, Candidate, Record | None]:
        with self.steps.running("find") as step:
            status = self._with.observe()
            if kept is not None:
                candidate = Candidate.model_validate(kept.candidate)
                step.message = f"resuming step {candidate.step}, started {kept.started_at}"
                newer = [
                    saved.step for saved in status.checkpoints if saved.newest and saved.step > candidate.step
                ]
                self.steps.note(
                    f"step {number} was saved meanwhile; run the command again to evaluate it"
                    for number in newer
                )
                return status, candidate, kept
            chosen = choose_latest(status, doubted)
            self.steps.note(chosen.notes)
            live = f", the run is at step {status.step.live}" if status.step.live is not None else ""
            step.message = f"step {chosen.candidate.step}{live}"
            return status, chosen.candidate, None

    def _payload(self, prepare: Preparation, record: Record) -> tuple[EvalResult, bytes, JobState]:
        """Follow the job, and bring back what it made."""
        assert record.job is not None and record.staged is not None
        with self.steps.running("run") as step:
            state = self._with.launcher.inspect(record.job)
            step.message = f"job {state.job}"
            self._with.release_run_host()
            state = prepare.follow("run", state)
            step.message = f"job {state.job} done"
        self._with.lock.write(record.model_copy(update={"step": "collect"}))
        with self.steps.running("collect") as step:
            result, log = running.collect(
                self._with.launcher, self._with.harness, state, record.evaluation_id, record.staged["sha256"]
            )
            step.message = f"{result.coverage.blocks} blocks of {result.coverage.prompts_done} prompts"
        return result, log, state

    def _followed(self, record: Record) -> dict[str, Any]:
        """Return what the command that was followed has made."""
        entry = self._with.archive.with_id(record.evaluation_id)
        if entry is None:
            raise DataError(
                "the evaluation that was followed has left no result",
                where=str(self._with.archive.folder),
                hint="run the command without --attach: it resumes, or says what is wrong",
            )
        with self.steps.running("find") as step:
            status = self._with.observe()
            step.message = f"step {record.candidate['step']}, by the command that was followed"
        return self._filer.again(
            entry, status, record.candidate, record, "done by the command that was followed"
        )

    def _work(self, candidate: Candidate) -> Work:
        collaborators = self._with
        source = source_of(self.inventory.runs[self.evaluation.run].host, candidate)
        return Work(
            name=self.name,
            evaluation=self.evaluation,
            host=self.inventory.hosts[self.evaluation.host],
            sample=self.sample,
            harness=collaborators.harness,
            prompts=collaborators.prompts,
            id=evaluation_id(
                self.name,
                self.evaluation,
                self.sample,
                source,
                settings=collaborators.harness.settings(self.evaluation),
                hashes=collaborators.harness.files.hashes,
                prompts_sha256=collaborators.prompts.sha256,
            ),
            step=candidate.step,
            archive=str(collaborators.archive.folder),
            here=collaborators.here,
        )

    def _preparation(self, work: Work) -> Preparation:
        return Preparation(
            self._with,
            self.inventory,
            work,
            self.steps,
            update_harness=self.options.update_harness,
            without_isolation=self.options.yes,
        )

    @cached_property
    def _filer(self) -> ResultFiler:
        return ResultFiler(
            collaborators=self._with,
            name=self.name,
            run=self.evaluation.run,
            sample=self.sample.name,
            steps=self.steps,
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
            "harness": self._with.harness.files.hashes,
            "prompts_sha256": self._with.prompts.sha256,
            "job": state.document(),
            "notes": self.steps.notes,
        }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
