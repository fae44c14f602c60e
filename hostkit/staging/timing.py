"""How long a staging will take, by the last one over the same route; and how fast a running one goes.

A time is estimated from a measured one or not at all.
"""

from __future__ import annotations

import json
import os
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hostkit.checkpoints.models import Value
from hostkit.directories import state_directory
from hostkit.errors import CannotCreateError
from hostkit.formatting import age, size
from hostkit.staging.models import StagePlan
from hostkit.staging.stage import Staged

ROUTES = 64  # that are remembered, the most recently used
MIN_SHARE = 10  # a copy of fewer than a tenth of the bytes shows the start rather than the route
WINDOW = 15.0  # seconds over which a rate is taken


class Expected(Value):
    """How long it will take; `seconds` is None where that is not known. `why`: what it is taken from."""

    seconds: float | None
    why: str

    @property
    def words(self) -> str:
        """Say it in a line."""
        return self.why if self.seconds is None else f"about {age(self.seconds)} ({self.why})"


class RouteRates:
    """What the last staging over each route took: `<state>/staging-rates.json`, which may be deleted at any time."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    def remember(self, plan: StagePlan, staged: Staged) -> None:
        """Keep what a staging took; nothing of one that found its bytes in place. No failure is raised."""
        came = staged.bytes - staged.resumed_at
        if staged.reused or came <= 0 or staged.seconds <= 0:
            return
        routes, key = self._read(), _route_key(plan, plan.rate)
        last = routes.pop(key, None)
        if last is None or came * MIN_SHARE >= last["bytes"]:
            at = datetime.now(UTC).isoformat(timespec="minutes")
            last = {"bytes": came, "seconds": round(staged.seconds, 2), "at": at}
        routes[key] = last
        with suppress(CannotCreateError, OSError):
            self._write(dict(list(routes.items())[-ROUTES:]))

    def expect(self, plan: StagePlan) -> Expected:
        """Return how long a plan will take."""
        if plan.staged:
            return Expected(seconds=None, why="nothing to copy; the staged copy is verified again")
        floor = plan.need / plan.rate if plan.rate else 0.0
        bound = f"; at least {age(floor)} at --rate {size(plan.rate)}/s" if plan.rate else ""
        routes = self._read()
        last = routes.get(_route_key(plan, plan.rate)) or routes.get(_route_key(plan, None))
        if last is None:
            return Expected(seconds=None, why=f"not known yet: never staged over this route{bound}")
        came = f"{size(last['bytes'])} came over this route in {age(last['seconds'])}"
        if last["bytes"] * MIN_SHARE < plan.need:
            return Expected(seconds=None, why=f"not known yet: only {came}{bound}")
        seconds = max(plan.need * last["seconds"] / last["bytes"], floor)
        return Expected(seconds=seconds, why=f"{came}, {last['at'][:16]}Z{bound}")

    def _read(self) -> dict[str, dict[str, Any]]:
        """Return the routes, the most recently used last; none where there is no readable file."""
        try:
            routes = json.loads(self._file(create=False).read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(routes, dict):
            return {}
        return {key: last for key, last in routes.items() if _is_valid(last)}

    def _write(self, routes: dict[str, dict[str, Any]]) -> None:
        path = self._file(create=True)
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            draft.write_text(json.dumps(routes, indent=1))
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)

    def _file(self, *, create: bool) -> Path:
        return self._path or state_directory(create=create) / "staging-rates.json"


def _route_key(plan: StagePlan, rate: int | None) -> str:
    """Return what tells one route from another; the folder may be another disk."""
    hops = list(plan.route)
    return json.dumps([plan.source, plan.destination, plan.folder, plan.by, plan.via, hops, rate])


def _is_valid(last: Any) -> bool:
    if not isinstance(last, dict) or not isinstance(last.get("at"), str):
        return False
    return all(type(last.get(key)) in (int, float) and 0 < last[key] < 1e18 for key in ("bytes", "seconds"))


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
