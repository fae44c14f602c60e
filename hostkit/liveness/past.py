"""What is remembered of earlier observations of a run (pure; `history` keeps it in a file)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from hostkit.identity import Identity
from hostkit.liveness.verdict import Verdict

# seconds that can be told as a date: a file with any other is damaged
Moment = Annotated[float, Field(ge=0, lt=253_402_300_800, allow_inf_nan=False)]
ENOUGH = 5.0  # seconds between two observations that a rate can be taken from


class Before(BaseModel):
    """The verdict that stood before the present one."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    verdict: str
    until: Moment


class PastObservation(BaseModel):
    """One observation, as remembered. `at` and `since` by this machine's clock, `boot` by the far boot clock.

    Verdicts are strings here: a newer version may have written one that this one does not know.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    at: Moment
    verdict: str
    since: Moment
    before: Before | None = None
    known: str | None = None  # the last verdict that was not UNKNOWN, when it was last given, and its step
    known_at: Moment | None = None
    known_step: int | None = None
    # of the last observation that reached the host
    boot_id: str | None = None
    boot: Moment | None = None
    identity: Identity | None = None
    exe: str | None = None
    argv: list[str] = []
    step: int | None = None
    log_path: str | None = None
    log_inode: int | None = None
    log_size: int | None = None
    cpu_ticks: int | None = None


@dataclass(frozen=True)
class Past:
    """The newest observations of a run, the oldest first, and the one that the reader who asks was last shown."""

    observations: tuple[PastObservation, ...] = ()
    shown: PastObservation | None = None

    @property
    def last(self) -> PastObservation | None:
        return self.observations[-1] if self.observations else None

    @property
    def unread_from(self) -> PastObservation | None:
        """What the present is compared with: what this reader was last shown, else the last observation."""
        return self.shown or self.last

    def of_process(self, identity: Identity, boot: float) -> Iterator[tuple[PastObservation, float]]:
        """Yield this very process's observations, the newest first, and how many seconds before `boot` each was."""
        for observation in reversed(self.observations):
            if observation.identity == identity and observation.boot is not None:
                yield observation, boot - observation.boot

    def then(self, verdict: Verdict, at: float) -> PastObservation:
        """Return the present as it will be remembered: its verdict and since when; its facts are the last known."""
        last = self.last
        if last is None:
            return PastObservation(at=at, verdict=verdict, since=at)
        if last.verdict == verdict:
            return last.model_copy(update={"at": at})
        before = Before(verdict=last.verdict, until=at)
        return last.model_copy(update={"at": at, "verdict": verdict.value, "since": at, "before": before})
