"""What is remembered of the last look at a run (pure; where it is kept is history's affair)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from hostkit.identity import Identity


class Before(BaseModel):
    """The verdict that stood before the present one."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    verdict: str
    until: float


class PastObservation(BaseModel):
    """One look, as remembered. `at` and `since` by this machine's clock, `boot` by the far boot clock."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    at: float
    verdict: str
    since: float
    before: Before | None = None
    known: str | None = None  # the last verdict that was not UNKNOWN, when it was last given, and its step
    known_at: float | None = None
    known_step: int | None = None
    # of the last look that reached the host
    boot_id: str | None = None
    boot: float | None = None
    identity: Identity | None = None
    exe: str | None = None
    argv: list[str] = []
    step: int | None = None
    log_path: str | None = None
    log_size: int | None = None
    cpu_ticks: int | None = None
