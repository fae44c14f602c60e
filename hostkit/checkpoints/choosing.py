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
        return next((one.candidate for one in self.ranked if one.chosen), None)

    @property
    def passed_over(self) -> tuple[Ranked, ...]:
        """Return what is newer than the chosen one, with the reasons (all of them where none was chosen)."""
        chosen = self.chosen
        return tuple(one for one in self.ranked if chosen is None or one.candidate.step > chosen.step)


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
    found = sorted(candidates, key=lambda one: (one.step, one.mtime_ns or 0), reverse=True)
    why = {id(one): _fault(one, live_step) for one in found}
    good = [one for one in found if why[id(one)] is None]
    own = [one for one in good if not predates(one, started_ns)]
    chosen = next(iter(own or good), None)
    note = None
    if chosen is not None and not own:
        note = (
            f"step {chosen.step} was written before the live attempt began: what it resumed from, or a stray"
        )
    elif chosen is not None and live_step is None:
        note = "the live step is unknown, so the checkpoint may be of an earlier attempt"
    ranked = [
        Ranked(candidate=one, chosen=one is chosen, why=_why(one, chosen, why[id(one)], own, started_ns))
        for one in found
    ]
    return Choice(ranked=tuple(ranked), note=note)


def _fault(one: Candidate, live_step: int | None) -> str | None:
    if not one.complete:
        return f"incomplete: {one.reason or 'no reason given'}"
    if beyond(one, live_step):
        return f"above the live step {live_step}: left by an earlier attempt"
    return None


def _why(
    one: Candidate, chosen: Candidate | None, fault: str | None, own: list[Candidate], started_ns: int | None
) -> str:
    if one is chosen:
        return f"{CHOSEN} ({one.reason})" if one.reason else CHOSEN
    if fault is not None:
        return fault
    if own and predates(one, started_ns):
        return "written before the live attempt began"
    return (
        f"older than step {chosen.step}"
        if chosen is not None and one.step < chosen.step
        else "same step, older file"
    )


def choose_step(candidates: Iterable[Candidate], step: int) -> Candidate:
    """Return the complete checkpoint of the step that was requested. Raises UsageError, DataError."""
    found = sorted(candidates, key=lambda one: one.step)
    mine = [one for one in found if one.step == step]
    for one in sorted(mine, key=lambda one: one.mtime_ns or 0, reverse=True):
        if one.complete:
            return one
    if mine:
        raise DataError(f"step {step} is incomplete: {mine[-1].reason}", where=mine[-1].path)
    nearest = sorted(sorted({one.step for one in found}, key=lambda other: abs(other - step))[:NEAREST])
    steps = ", ".join(map(str, nearest)) or "none"
    more = f" ({len(found)} in all: `hostkit checkpoints`)" if len(found) > NEAREST else ""
    raise UsageError(f"no checkpoint of step {step}", hint=f"nearest steps: {steps}{more}")
