"""All that is known of a run's checkpoints, one by one, as one document: `hostkit.checkpoints/1`, which only grows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from hostkit.checkpoints.choosing import Choice
from hostkit.checkpoints.models import Candidate, Layout
from hostkit.checkpoints.retention import Retention, next_deleted, retention_of
from hostkit.evals.best import Best, best_of
from hostkit.inventory.models import Inventory
from hostkit.liveness.attempts import Attempt, attempt_of, resumed_from
from hostkit.liveness.latest import choice_of
from hostkit.liveness.observe import observe
from hostkit.staging.inspect import summaries

if TYPE_CHECKING:
    from hostkit.liveness.status import TrainStatus
    from hostkit.transport.connections import Connections

SCHEMA = "hostkit.checkpoints/1"
ALL_LINES = 100_000  # of the log's tail, in which a resume may be told of

Inside = dict[
    str, tuple[int | None, int | None]
]  # by path: the step that it holds, and the bytes of its weights


class Row(BaseModel):
    """One checkpoint. `next_to_go`: the trainer removes it at its next save; None: not known."""

    model_config = ConfigDict(frozen=True)

    candidate: Candidate
    chosen: bool
    why: str
    age: float | None
    step_inside: int | None
    weights_bytes: int | None
    attempt: Attempt
    next_to_go: bool | None
    best: bool

    def document(self) -> dict[str, Any]:
        """Return it as one flat entry."""
        own = self.model_dump(mode="json", exclude={"candidate", "attempt"})
        attempt = {"attempt": self.attempt.word, "attempt_evidence": self.attempt.evidence}
        return self.candidate.model_dump(mode="json") | own | attempt


class Overview(BaseModel):
    """A run's checkpoints, newest first, what is decided about them, and what is known beside."""

    model_config = ConfigDict(frozen=True)

    run: str
    host: str
    verdict: str
    live_step: int | None
    declared: bool = True  # that the inventory says where the run saves
    note: str | None
    rows: tuple[Row, ...]
    retention: Retention | None
    next_save: int | None
    evals: tuple[str, ...] = ()  # that evaluate this run
    best: tuple[Best, ...]
    best_notes: tuple[str, ...]

    @property
    def chosen(self) -> Candidate | None:
        return next((row.candidate for row in self.rows if row.chosen), None)

    def document(self) -> dict[str, Any]:
        """Return the `hostkit.checkpoints/1` document."""
        return {
            "schema": SCHEMA,
            "run": self.run,
            "host": self.host,
            "verdict": self.verdict,
            "live_step": self.live_step,
            "chosen": self.chosen.model_dump(mode="json") if self.chosen else None,
            "note": self.note,
            "checkpoints": [row.document() for row in self.rows],
            "retention": self.retention.model_dump(mode="json") if self.retention else None,
            "next_save": self.next_save,
            "best": [one.model_dump(mode="json") for one in self.best],
            "best_notes": list(self.best_notes),
        }


def overview(connections: Connections, inventory: Inventory, run: str) -> Overview:
    """Observe a run, look into its complete checkpoints, and put together what is known of all.

    Raises UnreachableError, DataError where its checkpoints are not known.
    """
    host = inventory.runs[run].host
    connections.preconnect(host)
    status = observe(connections, inventory, run, ALL_LINES)
    choice = choice_of(status)
    inside: Inside = {}
    complete = [ranked.candidate.path for ranked in choice.ranked if ranked.candidate.complete]
    if complete:
        python, layout = inventory.hosts[host].python, Layout.of(inventory.runs[run].checkpoints)
        inside, torn = summaries(connections.transport(host), python, complete, layout)
        if torn:  # by this closer look, though they end as they should
            choice = choice_of(status, torn)
    return overview_of(inventory, status, choice, inside, status.log.lines)


def overview_of(
    inventory: Inventory, status: TrainStatus, choice: Choice, inside: Inside, lines: list[str]
) -> Overview:
    """Put it together. `lines`: of the run's log, the oldest first."""
    run = inventory.runs[status.run]
    saved = run.checkpoints
    candidates = [one.candidate for one in choice.ranked]
    process = status.processes[0] if status.identity is not None else None
    limit = status.step.live_at_most if status.step.live_at_most is not None else status.step.live
    resumed = resumed_from(
        candidates,
        root=saved.root if saved else None,
        argv=process.argv if process else (),
        cwd=process.cwd if process else None,
        lines=lines,
        log=run.log,
        live_step=status.step.live,
    )
    retention = retention_of(saved, process.argv if process else ())
    deleted = (
        [one.path for one in next_deleted(candidates, retention, status.step.next_save)] if retention else []
    )
    evals = [name for name, one in inventory.evals.items() if one.run == status.run]
    found = [best_of(inventory.archive_folder, name) for name in evals]
    best = [one for one, _ in found if one is not None]
    ages = {(one.step, one.path): one.age for one in status.checkpoints}
    return Overview(
        run=status.run,
        host=status.host.name,
        verdict=status.verdict,
        live_step=status.step.live,
        declared=saved is not None,
        note=choice.note,
        rows=tuple(
            Row(
                candidate=one.candidate,
                chosen=one.chosen,
                why=one.why,
                age=ages.get((one.candidate.step, one.candidate.path)),
                step_inside=inside.get(one.candidate.path, (None, None))[0],
                weights_bytes=inside.get(one.candidate.path, (None, None))[1],
                attempt=attempt_of(
                    one.candidate,
                    started_ns=status.started_ns if process else None,
                    live_step=limit,
                    resumed=resumed,
                ),
                next_to_go=one.candidate.path in deleted if retention else None,
                best=any(_is(one.candidate, each) for each in best),
            )
            for one in choice.ranked
        ),
        retention=retention,
        next_save=status.step.next_save,
        evals=tuple(evals),
        best=tuple(best),
        best_notes=tuple(note for _, notes in found for note in notes),
    )


def _is(one: Candidate, best: Best) -> bool:
    """Whether a result is of this very file; where its source is not recorded, of this step."""
    if best.step != one.step:
        return False
    source = best.source or {}
    known = [(source.get(key), value) for key, value in (("size", one.size), ("mtime_ns", one.mtime_ns))]
    return all(recorded is None or recorded == value for recorded, value in known)
