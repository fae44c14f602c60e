"""What an evaluation harness is to hostkit: its files, what it needs, what it runs, and how its result is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from hostkit.checkpoints import Contents, Fit, Layout
from hostkit.evals.harness_files import HarnessFiles
from hostkit.evals.prompts import Prompts
from hostkit.evals.request import Sample
from hostkit.evals.results import EvalResult
from hostkit.inventory.models import Eval
from hostkit.transport.base import Transport


@dataclass(frozen=True)
class Preflight:
    """What an evaluation will take at most (bytes), in a line for a person."""

    peak_bytes: int
    disk_bytes: int
    summary: str


class Harness(Protocol):
    """One evaluator. It runs on the evaluation host from the workspace's `harness` folder."""

    @property
    def files(self) -> HarnessFiles:
        """What of it really runs: these are installed, and their hashes are part of an evaluation's id."""
        ...

    def prompts(self, evaluation: Eval) -> Prompts:
        """Return the prompts that the inventory names. Raises ConfigError for a file that cannot be read."""
        ...

    def settings(self, evaluation: Eval) -> dict[str, Any]:
        """Return what of the inventory changes the figures: part of an evaluation's id."""
        ...

    def verify(self, contents: Contents, *, step: int, layout: Layout) -> Fit:
        """Say whether it would load this checkpoint, from what was read of it on its source."""
        ...

    def preflight(
        self, transport: Transport, evaluation: Eval, sample: Sample, prompts: Prompts, contents: Contents
    ) -> Preflight:
        """Say what the evaluation of a checkpoint that is still to be copied will take, on its host; writes nothing.

        Raises ConfigError with everything that is missing there.
        """
        ...

    def argv(
        self,
        evaluation: Eval,
        sample: Sample,
        prompts: Prompts,
        *,
        checkpoint: str,
        out: str,
        evaluation_id: str,
        one_block: bool,
    ) -> list[str]:
        """Return the command line on the evaluation host; `one_block`: one block end to end, no result."""
        ...

    def progress(self, event: dict[str, Any]) -> str:
        """Return one JSON line of its output in words for a person; empty when it says nothing to one."""
        ...

    def parse(self, data: bytes, *, where: str) -> EvalResult:
        """Read its result file. Raises DataError naming `where`."""
        ...
