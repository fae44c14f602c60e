"""A run's latest checkpoint, on the facts of one observation; and again, where that proves not to be whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from hostkit.checkpoints.choosing import Choice, choose
from hostkit.checkpoints.models import Candidate
from hostkit.errors import DataError, NotWholeError, UnreachableError
from hostkit.liveness.status import TrainStatus

T = TypeVar("T")
NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Latest:
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


def choose_latest(status: TrainStatus, doubted: Mapping[str, str] = NONE) -> Latest:
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
    return Latest(choice.chosen, tuple(notes + ([choice.note] if choice.note else [])))


def with_a_whole_checkpoint(
    attempt: Callable[[Mapping[str, str]], T], forget: Callable[[], None] = lambda: None
) -> T:
    """Make the attempt; once more with the checkpoint before, whenever the chosen one proves not to be whole.

    `attempt`: gets those that are not to be chosen, by path, with the reason. `forget`: called between attempts.
    """
    doubted: dict[str, str] = {}
    while True:
        try:
            return attempt(doubted)
        except NotWholeError as error:
            if error.path in doubted:
                raise
            doubted[error.path] = error.reason
            forget()
