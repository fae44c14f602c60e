"""The end of an evaluation: compare the result, file it, observe the training again, return it all in one document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hostkit.evals.archive import Archive, Entry, add_later
from hostkit.evals.compare import compare
from hostkit.evals.document import document
from hostkit.evals.record import EvaluationLock, Record
from hostkit.evals.results import EvalResult, dump
from hostkit.evals.steps import Steps

if TYPE_CHECKING:
    from hostkit.evals.collaborators import Collaborators
    from hostkit.liveness.status import TrainStatus

AFTER = "verdict-after.json"
RECHECK_RETRIES = 5  # of an observation that did not reach the run's host
RECHECK_PAUSE = 3.0  # seconds between two of them


@dataclass
class ResultFiler:
    """Files the results of one evaluation, and shows those that are filed."""

    collaborators: Collaborators
    name: str
    run: str
    sample: str
    steps: Steps
    ignore_run: bool

    @property
    def archive(self) -> Archive:
        return self.collaborators.archive

    def file(
        self,
        lock: EvaluationLock,
        record: Record,
        result: EvalResult,
        log: bytes,
        *,
        provenance: Mapping[str, Any],
    ) -> dict[str, Any]:
        """File a new result with all that belongs to it; return the `hostkit.eval-latest/1` document."""
        with self.steps.running("compare") as step:
            self.steps.note(self.archive.entries()[1])
            previous = self.archive.before(result)
            compared = compare(previous.result, result) if previous is not None else None
            step.message = "the first result here"
            if previous is not None and compared is not None:
                step.message = f"with {previous.label}: {compared.verdict}"
        with self.steps.running("archive") as step:
            files = {
                "result.json": dump(result.document()),
                "plan.json": dump(record.plan or {}),
                "provenance.json": dump(dict(provenance)),
                "verdict-before.json": dump(record.verdict_before),
                "log.txt": log,
            }
            if compared is not None:
                files["comparison.json"] = dump(compared.document())
            folder = self.archive.add(result, files)
            step.message = str(folder)
        lock.write(record.model_copy(update={"step": "recheck", "archived": str(folder)}))
        after = self._recheck(folder)
        return self._document(Entry(folder, result), previous, record.candidate, record.verdict_before, after)

    def again(
        self,
        entry: Entry,
        status: TrainStatus,
        candidate: dict[str, Any],
        record: Record | None,
        why: str,
    ) -> dict[str, Any]:
        """Return the document of a result that is filed already; finish its recheck if that was cut.

        `record`: of the command that made it and was cut, or was followed; None where it is an older one's.
        """
        previous = self.archive.before(entry.result)
        before = record.verdict_before if record is not None else status.document()
        self.steps.note([*(record.notes if record else ()), *self.archive.entries()[1]])
        after = status.document()
        if not (entry.folder / AFTER).exists():
            after = self._recheck(entry.folder)
        self.steps.skip_rest(why)
        return self._document(entry, previous, candidate, before, after, reused=record is None)

    def _recheck(self, folder: Path) -> dict[str, Any]:
        """Observe the training once more, and file that with the result."""
        with self.steps.running("recheck") as step:
            status = self._reached()
            after = status.document()
            live = status.step.live
            step.message = status.verdict + (f", step {live}" if live is not None else "")
            add_later(folder, AFTER, dump(after))
            return after

    def _reached(self) -> TrainStatus:
        """Observe the training; again for a bounded time where a hop was not reached."""
        for _ in range(RECHECK_RETRIES):
            status = self.collaborators.observe()
            if all(hop.answered or hop.state != "failed" for hop in status.hops):
                return status
            left = self.collaborators.remaining()
            if left is not None and left <= RECHECK_PAUSE:
                return status
            self.steps.say("recheck", "the run's host was not reached, trying again")
            self.collaborators.sleep(RECHECK_PAUSE)
        return self.collaborators.observe()

    def _document(
        self,
        entry: Entry,
        previous: Entry | None,
        candidate: dict[str, Any],
        before: dict[str, Any],
        after: dict[str, Any],
        *,
        reused: bool = False,
    ) -> dict[str, Any]:
        return document(
            self.name,
            self.run,
            entry,
            previous,
            candidate=candidate,
            sample=self.sample,
            before=before,
            after=after,
            steps=self.steps.document(),
            notes=self.steps.notes,
            reused=reused,
            ignore_run=self.ignore_run,
        )
