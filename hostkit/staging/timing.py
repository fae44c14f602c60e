"""How long a staging will take, by what the last ones over the same route took; and how fast one goes (pure).

A time is foretold from a measured one or not at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from hostkit.checkpoints.models import Value
from hostkit.formatting import age, size
from hostkit.staging.plan import StagePlan
from hostkit.staging.stage import Staged

EVENT = "staged"  # of the journal
FEWER = 10  # a copy of fewer than a tenth of the bytes says more of the start than of the route
WINDOW = 15.0  # seconds over which a rate is taken


class Expected(Value):
    """How long it will take; `seconds` is None where that is not known. `why`: what it is taken from."""

    seconds: float | None
    why: str

    @property
    def words(self) -> str:
        """Say it in a line."""
        return self.why if self.seconds is None else f"about {age(self.seconds)} ({self.why})"


def took(plan: StagePlan, staged: Staged) -> dict[str, Any] | None:
    """Return what the journal keeps of a staging that moved bytes; None of one that found them there."""
    came = staged.bytes - staged.resumed_at
    if staged.reused or came <= 0:
        return None
    return _way(plan) | {
        "run": plan.run,
        "step": plan.step,
        "method": plan.method,
        "bytes": came,
        "seconds": round(staged.seconds, 2),
        "rate": plan.rate,
    }


def expect(plan: StagePlan, events: Iterable[dict[str, Any]]) -> Expected:
    """Return how long a plan will take, by the journal's events, the oldest first."""
    if plan.staged:
        return Expected(seconds=None, why="nothing comes; what is there is proven again")
    floor = plan.need / plan.rate if plan.rate else 0.0
    bound = f"; at least {age(floor)} at --rate {size(plan.rate)}/s" if plan.rate else ""
    way = _way(plan)
    mine = [
        one
        for one in events
        if one.get("event") == EVENT
        and all(one.get(key) == value for key, value in way.items())
        and one.get("rate") in (None, plan.rate)
        and _positive(one.get("bytes"))
        and _positive(one.get("seconds"))
    ]
    if not mine:
        return Expected(seconds=None, why=f"not known yet: never staged over this route{bound}")
    like = [one for one in mine if one["bytes"] * FEWER >= plan.need]
    if not like:
        most = size(max(one["bytes"] for one in mine))
        return Expected(seconds=None, why=f"not known yet: at most {most} came over this route before{bound}")
    last = like[-1]
    seconds = max(plan.need * last["seconds"] / last["bytes"], floor)
    why = f"{size(last['bytes'])} came over this route in {age(last['seconds'])}, {str(last.get('at'))[:16]}Z"
    return Expected(seconds=seconds, why=why + bound)


def _way(plan: StagePlan) -> dict[str, Any]:
    """Return what tells one route from another."""
    return {
        "host": plan.destination,
        "folder": plan.folder,  # another disk, or another inventory's host of this name
        "source": plan.source,
        "by": plan.by,
        "carried": plan.carried,
        "route": list(plan.route),
    }


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


class Pace:
    """The rate of a copy that is under way, and what is left of it: of the last seconds, and of this run's bytes."""

    def __init__(self) -> None:
        self.seen: deque[tuple[float, int]] = deque()
        self.moved = 0.0  # when the last byte came

    def at(self, now: float, done: int) -> None:
        """Take note of how many bytes are there. Fewer than before: it began anew, and so does the pace."""
        if self.seen and done < self.seen[-1][1]:
            self.seen.clear()
        if not self.seen or done != self.seen[-1][1]:
            self.moved = now
            while len(self.seen) > 1 and self.seen[0][1] == self.seen[-1][1]:
                self.seen.popleft()  # nothing came so far: getting ready is not the pace
        self.seen.append((now, done))
        while len(self.seen) > 2 and now - self.seen[1][0] >= WINDOW:
            self.seen.popleft()

    @property
    def rate(self) -> float | None:
        """Bytes a second; None before two looks, and 0.0 where nothing came."""
        if len(self.seen) < 2 or self.seen[-1][0] <= self.seen[0][0]:
            return None
        (began, first), (now, done) = self.seen[0], self.seen[-1]
        return (done - first) / (now - began)

    @property
    def still(self) -> float:
        """Seconds without a new byte."""
        return self.seen[-1][0] - self.moved if self.seen else 0.0

    def left(self, total: int) -> float | None:
        """Seconds until all is there, at this rate; None where it is not known."""
        rate = self.rate
        return (total - self.seen[-1][1]) / rate if rate else None
