"""Verify on the run's host that a checkpoint is whole and that the harness would load it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hostkit.checkpoints import Candidate, Contents, Fit, Layout
from hostkit.errors import DataError, NotWholeError
from hostkit.inventory.models import Inventory
from hostkit.staging.inspect import inspect_checkpoint
from hostkit.staging.plan import marker_of

if TYPE_CHECKING:
    from hostkit.evals.harness import Harness
    from hostkit.transport.connections import Connections


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
