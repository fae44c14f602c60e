"""Find the checkpoint to evaluate, and verify on its host that it is whole and that the harness would load it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hostkit.checkpoints import Candidate, Choice, Contents, Fit, Layout, choose
from hostkit.errors import DataError, NotWholeError, UnreachableError
from hostkit.inventory.models import Inventory
from hostkit.staging.inspect import inspect_checkpoint
from hostkit.staging.plan import marker_of

if TYPE_CHECKING:
    from hostkit.evals.harness import Harness
    from hostkit.liveness.status import TrainStatus
    from hostkit.transport.connections import Connections


NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Chosen:
    """The checkpoint, why each newer one was passed over, and notes on the choice."""

    candidate: Candidate
    notes: tuple[str, ...] = ()


def choice_of(status: TrainStatus, doubted: Mapping[str, str] = NONE) -> Choice:
    """Return which of a run's checkpoints is the latest, by the rule of train-status and on its facts.

    `doubted`: those that proved not to be whole when read alone, by path, with the reason; none of it is chosen.
    Raises UnreachableError or DataError where they are not known: that there are none is another answer.
    """
    failed = next((hop for hop in status.hops if hop.state == "failed"), None)
    if failed is not None and failed.answered:
        raise DataError(
            f"the checkpoints are not known: {failed.error}",
            where=failed.name,
            hint="see `hostkit train-status`; nothing was started",
        )
    if failed is not None:
        stood = tuple(hop.name for hop in status.hops if hop.state == "ok")
        raise UnreachableError(
            f"the run's host is unreachable: {failed.error}",
            hop=failed.name,
            hops_reached=stood,
            hint="see `hostkit train-status`; nothing was started",
        )
    if status.checkpoints_error:
        raise DataError(
            f"the checkpoints of run {status.run} cannot be listed: {status.checkpoints_error}",
            where=status.host.name,
            hint="is `checkpoints.root` right, and may this account read it?",
        )
    candidates = [Candidate.model_validate(one) for one in status.checkpoints]
    candidates = [
        one.model_copy(update={"complete": False, "reason": doubted[one.path]})
        if one.path in doubted
        else one
        for one in candidates
    ]
    live = status.step.live_at_most if status.step.live_at_most is not None else status.step.live
    return choose(candidates, live, started_ns=status.started_ns)


def choose_latest(status: TrainStatus, doubted: Mapping[str, str] = NONE) -> Chosen:
    """Return the newest complete checkpoint of the live attempt, and none of `doubted`.

    Raises UnreachableError, DataError.
    """
    choice = choice_of(status, doubted)
    if choice.chosen is None:
        passed = "; ".join(f"step {one.candidate.step}: {one.why}" for one in choice.ranked[:5])
        raise DataError(
            f"run {status.run} has no complete checkpoint ({passed or 'none at all'})",
            where=status.host.name,
            hint="`hostkit checkpoints` lists what there is",
        )
    notes = [f"step {one.candidate.step} was passed over: {one.why}" for one in choice.passed_over]
    return Chosen(choice.chosen, tuple(notes + ([choice.note] if choice.note else [])))


@dataclass(frozen=True)
class Verified:
    """What the checkpoint is and holds, and how it fits the harness."""

    contents: Contents
    fit: Fit

    @property
    def words(self) -> str:
        step = f"step {self.fit.step} inside" if self.fit.step is not None else "no step inside"
        return f"{self.contents.format}, {len(self.contents.tensors)} tensors, {step}; the harness loads it"


def verify(
    connections: Connections, inventory: Inventory, run: str, candidate: Candidate, harness: Harness
) -> Verified:
    """Read the checkpoint's keys, shapes and config on its host, and hold them against the harness.

    Raises NotWholeError, and DataError where it was saved anew since, or the harness would not load it.
    """
    host = inventory.runs[run].host
    saved = inventory.runs[run].checkpoints
    contents = inspect_checkpoint(
        connections.transport(host),
        inventory.hosts[host].python,
        candidate.path,
        marker=marker_of(saved.marker if saved else None, candidate.step),
        layout=Layout.of(saved),
    )
    where = f"{host}:{candidate.path}"
    if not contents.complete:
        raise NotWholeError(candidate.path, contents.reason or "no reason given", host=host)
    chosen = (candidate.size, candidate.mtime_ns, candidate.inode)
    if contents.identity != chosen:
        raise DataError(
            f"step {candidate.step} was saved again after it was chosen",
            where=where,
            hint="run the command again",
        )
    fit = harness.verify(contents, step=candidate.step, layout=Layout.of(saved))
    if not fit.ok:
        raise DataError(
            "the harness would not load it: " + "; ".join(fit.problems),
            where=where,
            hint="nothing was copied; is it the checkpoint of a DFlash drafter?",
        )
    return Verified(contents, fit)


def source_of(host: str, candidate: Candidate) -> dict[str, Any]:
    """Return what tells this checkpoint from any other: where it is, and what its file was like."""
    return {"host": host} | candidate.model_dump(include={"path", "step", "size", "mtime_ns", "inode"})
