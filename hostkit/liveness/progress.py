"""How far a run is: live step, rate, end, newest complete checkpoint, and how far that lags behind (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from hostkit.checkpoints.choosing import beyond, choose, predates
from hostkit.checkpoints.models import Candidate
from hostkit.formatting import age
from hostkit.inventory.models import Run
from hostkit.liveness.logs import LogReading
from hostkit.liveness.past import ENOUGH, Past
from hostkit.liveness.readings import ProcessFacts, Reading


@dataclass(frozen=True)
class Save:
    """A checkpoint beside the run's steps. `attempt`: live, or earlier (its step is above the live step)."""

    candidate: Candidate
    age: float | None
    attempt: str
    before_start: bool  # written before the present process began
    newest: bool = False  # the newest complete one of the live attempt


@dataclass(frozen=True)
class Progress:
    """Steps are counts, times seconds; None is "not known"."""

    live: int | None = None
    live_at_most: int | None = None  # the log speaks only now and then: it may be this far already
    total: int | None = None
    rate: float | None = None
    rate_from: str = "not measured"
    saved: int | None = None
    lag: int | None = None
    lag_percent: float | None = None
    lag_minutes: float | None = None
    eta: float | None = None
    next_save: int | None = None
    next_save_in: float | None = None
    saves: tuple[Save, ...] = ()
    started_ns: int | None = None  # files at least this new are of the live attempt

    @property
    def newest(self) -> Save | None:
        return next((save for save in self.saves if save.newest), None)


def measure(run: Run, reading: Reading, log: LogReading, main: ProcessFacts | None, past: Past) -> Progress:
    """Put the log's steps, the checkpoints and the last look together."""
    live, total = log.step, run.total_steps or log.total
    at_most = None if live is None else live + log.interval
    rate, rate_from = _rate(reading, log, main, past)
    every = run.checkpoints.every if run.checkpoints else None
    # a tail with a single step does not say how seldom the log speaks; what this process wrote itself is its own
    unsaid = live + (every or 0) if live is not None and not log.interval else None
    # a file system may date by whole seconds, so that a file of the first moment looks older than the process
    started = None if main is None else int((reading.started(main) - 1) * 1e9)
    saves, at_most = _saves(reading, started, at_most, unsaid)
    newest = next((save for save in saves if save.newest), None)
    saved = newest.candidate.step if newest else None
    lag = percent = minutes = None
    if live is not None and saved is not None:
        lag = max(0, live - saved)
        percent = 100 * lag / live if live else 0.0
        minutes = lag / rate / 60 if rate else None
    if minutes is None and newest is not None and newest.age is not None and main is not None:
        minutes = max(0.0, newest.age) / 60
    due = None if live is None or not every else (max(live, saved or 0) // every + 1) * every
    alive = main is not None and bool(rate)
    return Progress(
        live=live,
        live_at_most=at_most,
        total=total,
        rate=rate,
        rate_from=rate_from,
        saved=saved,
        lag=lag,
        lag_percent=percent,
        lag_minutes=minutes,
        eta=(total - live) / rate
        if alive and rate and total and live is not None and live <= total
        else None,
        next_save=due,
        next_save_in=(due - live) / rate if alive and rate and due and live is not None else None,
        saves=saves,
        started_ns=started,
    )


def _rate(
    reading: Reading, log: LogReading, main: ProcessFacts | None, past: Past
) -> tuple[float | None, str]:
    if log.rate is not None:
        return log.rate, f"{log.rate_steps} steps in the log"
    if main is None or log.step is None:
        return None, "not measured"
    for earlier, elapsed in past.of_process(reading.identity(main), reading.clock.boot):
        if earlier.step is not None and earlier.step < log.step and elapsed >= ENOUGH:
            steps = log.step - earlier.step
            return steps / elapsed, f"{steps} steps in {age(elapsed)}"
    return None, "not measured"


def _saves(
    reading: Reading, started: int | None, at_most: int | None, unsaid: int | None
) -> tuple[tuple[Save, ...], int | None]:
    """Order checkpoints by step, the highest first, and mark the newest complete one of the live attempt.

    Also returns how far the run may be already: what this process has saved itself, it has reached.
    """
    found = sorted(reading.run.checkpoints.found, key=lambda one: -one.step)

    own = [
        one.step for one in found if unsaid is not None and started is not None and not predates(one, started)
    ]
    limit = at_most if at_most is None else max([at_most, *(step for step in own if step <= (unsaid or 0))])
    chosen = choose(found, limit, started_ns=started).chosen
    left = chosen is not None and started is not None and not predates(chosen, started)
    return tuple(
        Save(
            candidate=one,
            age=None if one.mtime_ns is None else reading.clock.files - one.mtime_ns / 1e9,
            attempt="earlier" if beyond(one, limit) or (left and predates(one, started)) else "live",
            before_start=predates(one, started),
            newest=chosen is not None and (one.path, one.step) == (chosen.path, chosen.step),
        )
        for one in found
    ), limit
