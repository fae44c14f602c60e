"""The verdict on a run whose process lives: UNKNOWN, DIVERGED, DEGRADED, STALLED, STARTING or RUNNING (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hostkit.formatting import age
from hostkit.liveness.groups import Group
from hostkit.liveness.observation import Observation
from hostkit.liveness.readings import SKEW, ProcessFacts
from hostkit.liveness.verdict import Verdict

WORKERS_COME = 120.0  # seconds in which a launcher's workers come up


@dataclass(frozen=True)
class _Movement:
    """The newest sign of progress, and what could not be dated."""

    age: float | None
    what: str
    undated: tuple[str, ...]


def _movement(observation: Observation, main: ProcessFacts) -> _Movement:
    signs: list[tuple[float, str]] = []
    undated: list[str] = []
    reading = observation.reading
    life, log = reading.age(main), reading.run.log
    dated = [(observation.log_age, "the log")] if observation.log_age is not None else []
    if log.held is False:
        dated += [(reading.clock.files - file.mtime, f"its own log {file.path}") for file in log.others]
    dated += [
        (save.age, f"checkpoint {save.candidate.step}")
        for save in observation.progress.saves
        if save.age is not None
    ]
    for old, what in dated:
        if old < -SKEW:
            undated.append(f"{what} is dated {age(-old)} in the future: its age is unknown")
        elif old <= life + 1:
            signs.append((max(0.0, old), what))
    earlier = list(observation.past.of_process(reading.identity(main), reading.clock.boot))
    step = observation.log.step
    below = [
        (since, past.step) for past, since in earlier if step and past.step is not None and past.step < step
    ]
    shorter = [since for past, since in earlier if 0 < (past.log_size or 0) < (log.size or 0)]
    if below:
        signs.append((below[0][0], f"the step ({below[0][1]} to {step})"))
    elif undated and shorter:
        signs.append((shorter[0], "the size of the log"))
    best = min(signs, default=None)
    return _Movement(best[0] if best else None, best[1] if best else "", tuple(undated))


def with_process(observation: Observation, group: Group) -> tuple[Verdict, tuple[str, ...]]:
    assert group.main is not None
    main, reading, limits = group.main, observation.reading, observation.run.timeouts
    life, move = reading.age(main), _movement(observation, main)
    how = {
        "argv": "",
        "pidfile": " (by its pidfile)",
        "record": " (its title has changed; known by pid, start time and program)",
    }
    lives = f"process {main.pid} on {observation.run.host} is alive, started {age(life)} ago{how[main.how]}"
    stepless = observation.log.step is None
    stopped = [process for process in group.all if process.stopped and process.role != "helper"]
    if observation.log.diverged and not stepless:
        return Verdict.DIVERGED, (
            f"the loss is {observation.log.loss} at step {observation.log.step}",
            lives,
            *_moves(move, limits.stall),
        )
    count = f"{group.workers} of {group.expected} workers are alive"
    if group.expected and group.workers < group.expected and (life > WORKERS_COME or not stepless):
        lost = f"{count}" + (f", {_zombies(group)} zombie children" if _zombies(group) else "")
        return Verdict.DEGRADED, (lost, lives, *_moves(move, limits.stall))
    workers = (count,) if group.expected and group.expected > 1 else ()
    if stopped:
        return Verdict.STALLED, (*(_stopped(process) for process in stopped), lives)
    if move.undated and (move.age is None or move.age > limits.stall):
        return Verdict.UNKNOWN, (*move.undated, lives, "no other sign of progress; ask again in a minute")
    if stepless and life <= limits.startup and observation.log.loss is None:
        return Verdict.STARTING, (
            lives,
            f"no step yet; it has until {age(limits.startup)} after its start",
            *workers,
        )
    if move.age is None and life <= limits.stall:  # its start is the newest sign of movement there is
        return (Verdict.STARTING if stepless else Verdict.RUNNING), (
            lives,
            f"nothing has moved yet; it counts as stalled {age(limits.stall)} after its start",
            *workers,
        )
    if move.age is None and _blind(observation):
        return Verdict.UNKNOWN, (lives, f"nothing shows whether it is progressing: {_blind(observation)}")
    if move.age is None or move.age > limits.stall:
        old = life if move.age is None else move.age
        return Verdict.STALLED, (
            f"nothing has moved for {age(old)} (limit {age(limits.stall)})"
            + (f"; the newest sign is {move.what}" if move.what else " since it began"),
            lives,
            *_busy(observation, main),
            *workers,
        )
    steps = ("no step could be read in the log",) if stepless else (f"step {observation.log.step}",)
    return Verdict.RUNNING, (lives, *_moves(move, limits.stall), *steps, *move.undated, *workers)


def _stopped(process: ProcessFacts) -> str:
    if process.state == "t":
        return f"process {process.pid} is held by a tracer such as a debugger (state t)"
    return f"process {process.pid} is stopped (state T): it does nothing until SIGCONT"


def _blind(observation: Observation) -> str:
    """Return why no progress could have been seen; empty where log or checkpoints can be read."""
    log, saves = observation.reading.run.log, observation.reading.run.checkpoints
    if log.mtime is not None or (saves.root and not saves.error):
        return ""
    return (log.error or "no log") + (
        f"; {saves.root}: {saves.error}" if saves.error else "; no checkpoints are declared"
    )


def _moves(move: _Movement, limit: float) -> tuple[str, ...]:
    return (f"{move.what} moved {age(move.age)} ago (limit {age(limit)})",) if move.age is not None else ()


def _zombies(group: Group) -> int:
    return sum(process.zombies for process in group.all)


def _busy(observation: Observation, main: ProcessFacts) -> Iterator[str]:
    """Say what a stalled run is doing; load is never a reason to call it running."""
    if main.state == "D":
        yield "it waits in the kernel (state D): a disk, a network file system or a driver that does not answer"
    clock, identity = observation.reading.clock, observation.reading.identity(main)
    for earlier, elapsed in observation.past.of_process(identity, clock.boot):
        if earlier.cpu_ticks is not None and elapsed >= 1:
            used = (main.cpu_ticks - earlier.cpu_ticks) / clock.hz / elapsed
            yield f"it {'spins' if used > 0.5 else 'is idle'}: {100 * used:.0f} % of a core in the last {age(elapsed)}"
            break
    use = [f"{gpu.get('index')}: {gpu.get('use')} %" for gpu in observation.reading.gpus.each]
    if use:
        yield "GPU use says nothing about progress: " + ", ".join(use)
