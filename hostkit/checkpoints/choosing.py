"""Which checkpoint is the latest: the newest complete one of the live attempt, and why each other is not (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from hostkit.checkpoints.models import Candidate, Value
from hostkit.errors import DataError, UsageError

CHOSEN = "chosen"
NEAREST = 5  # steps that are named where the one that was requested is not there


class Ranked(Value):
    """A candidate and what was decided about it."""

    candidate: Candidate
    chosen: bool
    why: str


class Choice(Value):
    """The decision over all candidates, newest first. `note`: a doubt that stands beside the choice."""

    ranked: tuple[Ranked, ...] = ()
    note: str | None = None

    @property
    def chosen(self) -> Candidate | None:
        return next((ranked.candidate for ranked in self.ranked if ranked.chosen), None)

    @property
    def passed_over(self) -> tuple[Ranked, ...]:
        """Return what is newer than the chosen candidate, with the reasons (all of them where none was chosen)."""
        chosen = self.chosen
        return tuple(
            ranked for ranked in self.ranked if chosen is None or ranked.candidate.step > chosen.step
        )


def beyond(candidate: Candidate, live_step: int | None) -> bool:
    """Whether its step is one that the live attempt has not reached."""
    return live_step is not None and candidate.step > live_step


def predates(candidate: Candidate, started_ns: int | None) -> bool:
    """Whether it was written before the live process began, by the clock that dates the files."""
    return started_ns is not None and (candidate.mtime_ns or 0) < started_ns


def choose(
    candidates: Iterable[Candidate], live_step: int | None, *, started_ns: int | None = None
) -> Choice:
    """Return the newest complete checkpoint of the live attempt.

    A step above `live_step` was left by an earlier attempt: listed, never chosen. `started_ns` (when the live
    attempt began, by the clock that dates the files) tells strays below it too: older ones are chosen only where
    the attempt has saved none itself, since it may have resumed from one.
    """
    ordered = sorted(
        candidates, key=lambda candidate: (candidate.step, candidate.mtime_ns or 0), reverse=True
    )
    faults = {id(candidate): _fault(candidate, live_step) for candidate in ordered}
    good = [candidate for candidate in ordered if faults[id(candidate)] is None]
    own = [candidate for candidate in good if not predates(candidate, started_ns)]
    chosen = next(iter(own or good), None)
    note = None
    if chosen is not None and not own:
        note = (
            f"step {chosen.step} was written before the live attempt began: what it resumed from, or a stray"
        )
    elif chosen is not None and live_step is None:
        note = "the live step is unknown, so the checkpoint may be of an earlier attempt"
    ranked = [
        Ranked(
            candidate=candidate,
            chosen=candidate is chosen,
            why=_why(candidate, chosen, faults[id(candidate)], own, started_ns),
        )
        for candidate in ordered
    ]
    return Choice(ranked=tuple(ranked), note=note)


def _fault(candidate: Candidate, live_step: int | None) -> str | None:
    if not candidate.complete:
        return f"incomplete: {candidate.reason or 'no reason given'}"
    if beyond(candidate, live_step):
        return f"above the live step {live_step}: left by an earlier attempt"
    return None


def _why(
    candidate: Candidate,
    chosen: Candidate | None,
    fault: str | None,
    own: list[Candidate],
    started_ns: int | None,
) -> str:
    if candidate is chosen:
        return f"{CHOSEN} ({candidate.reason})" if candidate.reason else CHOSEN
    if fault is not None:
        return fault
    if own and predates(candidate, started_ns):
        return "written before the live attempt began"
    return (
        f"older than step {chosen.step}"
        if chosen is not None and candidate.step < chosen.step
        else "same step, older file"
    )


def choose_step(candidates: Iterable[Candidate], step: int) -> Candidate:
    """Return the complete checkpoint of the step that was requested. Raises UsageError, DataError."""
    ordered = sorted(candidates, key=lambda candidate: candidate.step)
    mine = [candidate for candidate in ordered if candidate.step == step]
    for candidate in sorted(mine, key=lambda candidate: candidate.mtime_ns or 0, reverse=True):
        if candidate.complete:
            return candidate
    if mine:
        raise DataError(f"step {step} is incomplete: {mine[-1].reason}", where=mine[-1].path)
    nearest = sorted(
        sorted({candidate.step for candidate in ordered}, key=lambda other: abs(other - step))[:NEAREST]
    )
    steps = ", ".join(map(str, nearest)) or "none"
    more = f" ({len(ordered)} in all: `hostkit checkpoints`)" if len(ordered) > NEAREST else ""
    raise UsageError(f"no checkpoint of step {step}", hint=f"nearest steps: {steps}{more}")
