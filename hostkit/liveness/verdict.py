"""From one reading to a verdict and its evidence: the table of verdicts, in its order (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hostkit.inventory.models import Run
from hostkit.liveness.findings import Finding, Look, findings
from hostkit.liveness.logs import LogReading, parse
from hostkit.liveness.progress import Progress, measure
from hostkit.liveness.readings import SKEW, ProcessFacts, Reading
from hostkit.liveness.seen import Seen
from hostkit.liveness.words import age

RUNNING, STARTING, FINISHED = "RUNNING", "STARTING", "FINISHED"
STALLED, DEGRADED, DIVERGED, DEAD, UNKNOWN = "STALLED", "DEGRADED", "DIVERGED", "DEAD", "UNKNOWN"
EXITS = {RUNNING: 0, STARTING: 0, FINISHED: 0, STALLED: 2, DEGRADED: 2, DIVERGED: 2, DEAD: 2, UNKNOWN: 3}
WORKERS_COME = 120.0  # seconds in which a launcher's workers come up
# these hold a log open, or wait, without being what is logged
_WRAPPERS = re.compile(
    r"-?(?:ba|da|z|k|mk|a|fi)?sh|tee|sudo|timeout|nohup|screen|tmux.*|script|ssh|sleep|tail|cat|logger|su"
)


@dataclass(frozen=True)
class Judgement:
    """A verdict, what it rests on, and all that was measured on the way."""

    verdict: str
    evidence: tuple[str, ...]
    findings: tuple[Finding, ...]
    progress: Progress
    log: LogReading
    processes: tuple[ProcessFacts, ...]  # all that fit; all are protected

    @property
    def exit(self) -> int:
        """The worst of verdict and findings: 2, else 3, else 1, else 0."""
        return worst([EXITS[self.verdict], *(finding.severity for finding in self.findings)])


def worst(exits: list[int]) -> int:
    """Return the exit code that speaks for all: 2, else 3, else 1, else 0."""
    return next((code for code in (2, 3, 1) if code in exits), 0)


def judge(
    run: Run,
    reading: Reading,
    seen: Seen | None = None,
    *,
    here: float | None = None,
    here_within: float = 0.0,
) -> Judgement:
    """Return the verdict on a run. `here` is this machine's clock at the reading, known to `here_within` seconds."""
    group = _Group.of(run, reading)
    log = parse(reading.run.log.tail, run.log, begins=reading.run.log.begins)
    notes: list[str] = [*log.notes]
    if group.main is not None and log.step is not None and _of_an_earlier_attempt(reading, log, group.main):
        notes.append(
            f"the log's last step, {log.step}, is an earlier attempt's: it was written before the process began"
        )
        log = replace(log, step=None, rate=None, loss=None, finished=None, stepped_at=None, interval=0)
    progress = measure(run, reading, log, group.main, seen)
    look = Look(run, reading, log, progress, group.main, seen, here, here_within)
    if group.doubt:
        verdict, evidence = UNKNOWN, group.doubt
    elif group.main is None:
        verdict, evidence = _without(look)
    else:
        verdict, evidence = _living(look, group)
    return Judgement(
        verdict=verdict,
        evidence=(*evidence, *notes),
        findings=tuple(findings(look)),
        progress=progress,
        log=log,
        processes=group.all,
    )


def _of_an_earlier_attempt(reading: Reading, log: LogReading, main: ProcessFacts) -> bool:
    began = reading.started(main)
    mtime = reading.run.log.mtime
    written = mtime is not None and mtime < began - 1 and mtime <= reading.clock.files + SKEW
    return written or (log.stepped_at is not None and log.stepped_at < began - SKEW)


@dataclass(frozen=True)
class _Group:
    """The processes that are one run: a trainer with its helpers, or a launcher with its workers."""

    all: tuple[ProcessFacts, ...] = ()
    main: ProcessFacts | None = None
    workers: int = 0
    expected: int | None = None
    doubt: tuple[str, ...] = ()

    @classmethod
    def of(cls, run: Run, reading: Reading) -> _Group:
        found = reading.run.processes
        if not found:
            return cls()
        own = [one for one in found if one.pid_ns in (None, reading.host.pid_ns)] or found
        tops = {one.top for one in own if one.role != "launcher"} or {one.top for one in own}
        own = [one for one in own if one.top in tops]
        main = next((one for one in own if one.role in ("trainer", "worker")), own[0])
        declared = run.process.workers
        if len(tops) > 1 and not (declared and len(tops) <= declared and _kin(own, tops)):
            lines = [
                f"{len(tops)} processes fit, and which of them is the run cannot be told; all are protected"
            ]
            lines += [_name(one, reading) for one in own if one.pid == one.top]
            lines.append("tell them apart in the inventory: process.args or process.cwd")
            return cls(all=tuple(found), main=None, doubt=tuple(lines))
        launched = any(one.role == "launcher" for one in own)
        workers = sum(one.role == "worker" for one in own) if launched else len(tops)
        if not launched and len(tops) == 1:  # a trainer that starts its workers by itself
            forked = sum(one.role == "helper" and one.ppid == main.pid for one in own)
            workers = max(1, forked, main.spawned)
        expected = declared or max((one.expects or 0 for one in own), default=0) or (1 if launched else None)
        return cls(all=tuple(own), main=main, workers=workers, expected=expected)


def _kin(own: list[ProcessFacts], tops: set[int]) -> bool:
    """Whether several roots are workers of one run: one parent (not init) or one session started them."""
    heads = [one for one in own if one.pid in tops]
    return len({one.ppid for one in heads}) == 1 != heads[0].ppid or len({one.session for one in heads}) == 1


def _name(one: ProcessFacts, reading: Reading) -> str:
    command = " ".join(one.argv) or f"[{one.comm}]"
    command = command if len(command) <= 120 else command[:120] + "…"
    return (
        f"process {one.pid}, {age(reading.age(one))} old, in {one.cwd or 'an unreadable folder'}: {command}"
    )


# Without a process: UNKNOWN, FINISHED or DEAD.


def _without(look: Look) -> tuple[str, tuple[str, ...]]:
    reading, facts = look.reading, look.reading.run
    told = tuple(_told(look))
    doubts = tuple(_doubts(look))
    if doubts:
        return UNKNOWN, (*doubts, *told)
    newest = min((save.age for save in look.progress.saves if save.age is not None), default=None)
    if look.log_age is None and newest is None:
        where = [text for text in (facts.log.path, facts.checkpoints.root) if text]
        return UNKNOWN, (
            "never seen here: no process, and neither a log nor a checkpoint; is the inventory right?",
            *((f"looked at {' and '.join(where)}",) if where else ()),
            *told,
        )
    done = _finished(look)
    if done:
        return FINISHED, ("no process of the run is there", done, *told)
    short = _said_done(look)
    stall = look.run.timeouts.stall
    for what, old in (("log", look.log_age), ("newest checkpoint", newest)):
        if old is None:
            continue
        if old < -SKEW:
            return UNKNOWN, (
                f"no process, and the {what} is dated {age(-old)} in the future: how old it is is unknown",
                *told,
            )
        if old <= stall:
            return UNKNOWN, (
                f"no process, yet the {what} was written {age(old)} ago (limit {age(stall)}): "
                "just ended, restarting, or written by another?",
                *told,
                *short,
            )
    trace = (
        f"its log has been silent for {age(look.log_age)}"
        if look.log_age is not None
        else f"no log; its newest checkpoint is {age(newest or 0)} old"
    )
    seen = f"no process of the run among {reading.table.pids} that were seen (process 1 and all users' are visible)"
    return DEAD, (seen, f"{trace} (limit {age(stall)})", *short, *told)


def _doubts(look: Look) -> Iterator[str]:
    """Why "no process was found" does not mean that there is none."""
    reading, facts = look.reading, look.reading.run
    for one in facts.titles:
        yield (
            f"process {one.pid} is a python under a changed title ({' '.join(one.argv)[:80]!r}) at this run's files: "
            "it may be the run; declare process.pidfile to make sure"
        )
    for one in facts.near:
        if one.doubt:
            yield f"process {one.pid} fits, but {one.why}: it may be the run"
    gap = reading.table.gap()
    if gap:
        yield f"no process of the run can be seen, but {gap}: ask as root, or as the run's user"
    for one in facts.log.writers:
        name = one.argv[0].rsplit("/", 1)[-1] if one.argv else one.comm
        if not _WRAPPERS.fullmatch(name) and one.pid not in {title.pid for title in facts.titles}:
            command = " ".join(one.argv)[:100]
            yield f"no process fits, yet process {one.pid} has the log open for writing (inventory right?): {command}"
    if facts.log.error and not facts.log.missing and facts.log.origin == "inventory":
        yield f"no process of the run is there, and the log {facts.log.path} cannot be read: {facts.log.error}"
    if facts.checkpoints.error and facts.log.mtime is None and "No such file" not in facts.checkpoints.error:
        yield f"{facts.checkpoints.root} cannot be read: {facts.checkpoints.error}"


def _told(look: Look) -> Iterator[str]:
    """What else is known where no process was found."""
    facts = look.reading.run
    if facts.pidfile is not None and not facts.pidfile.valid:
        yield f"pidfile {facts.pidfile.path}: {facts.pidfile.reason}"
    if facts.record is not None:
        became = {
            "gone": "is gone",
            "zombie": "has ended (a zombie, not yet reaped)",
            "reused": "has ended; its number was given to another",
            "other boot": "is gone: the host or the container was started anew",
        }
        if facts.record.state in became:
            yield f"process {facts.record.pid}, seen before as the run, {became[facts.record.state]}"
    for one in facts.zombies:
        if facts.record is None or one.pid != facts.record.pid:
            yield f"zombie {one.pid} [{one.comm}] has ended and is not reaped by its parent {one.ppid}"
    for pid in facts.gone:
        yield f"process {pid} ended while it was looked at"
    mention = [str(one.pid) for one in facts.near if not one.doubt]
    if mention:
        yield f"not counted, since they only mention it: {', '.join(mention)}"
    if facts.log.missing:
        yield f"the log {facts.log.path} does not exist"
    if look.log.step is not None:
        of = f" of {look.progress.total}" if look.progress.total else ""
        yield f"the log's last step is {look.log.step}{of}"


def _finished(look: Look) -> str | None:
    total, log = look.run.total_steps, look.log
    if total and log.step is not None and log.step + 1 >= total:
        return f"the log's last step is {log.step} of {total}"
    if total and look.progress.saved is not None and look.progress.saved >= total:
        return f"the checkpoint of the last step, {look.progress.saved}, is complete"
    if log.finished is not None and not _said_done(look):
        return f"the log ends with the declared mark: {log.finished[:120]}"
    return None


def _said_done(look: Look) -> tuple[str, ...]:
    total, log = look.run.total_steps, look.log
    if (
        log.finished is not None
        and total
        and log.step is not None
        and log.step + max(1, log.interval) < total
    ):
        return (f"the log says that it is done, at step {log.step} of {total}: it ended short",)
    return ()


# With a process: UNKNOWN, DIVERGED, DEGRADED, STALLED, STARTING or RUNNING.


@dataclass(frozen=True)
class _Movement:
    """The newest sign that the run moves, and what could not be dated."""

    age: float | None
    what: str
    undated: tuple[str, ...]


def _movement(look: Look, main: ProcessFacts) -> _Movement:
    signs: list[tuple[float, str]] = []
    undated: list[str] = []
    life = look.reading.age(main)
    log = look.reading.run.log
    dated = [(look.log_age, "the log")] if look.log_age is not None else []
    if log.held is False:
        dated += [(look.reading.clock.files - one.mtime, f"its own log {one.path}") for one in log.others]
    dated += [
        (save.age, f"checkpoint {save.candidate.step}")
        for save in look.progress.saves
        if save.age is not None
    ]
    for old, what in dated:
        if old < -SKEW:
            undated.append(f"{what} is dated {age(-old)} in the future: its freshness is unknown")
        elif old <= life + 1:
            signs.append((max(0.0, old), what))
    if look.seen and look.seen.boot is not None and look.seen.identity == look.reading.identity(main):
        since = look.reading.clock.boot - look.seen.boot
        if look.log.step is not None and look.seen.step is not None and look.log.step > look.seen.step:
            signs.append((since, f"step {look.log.step} (it was {look.seen.step} at the last look)"))
        elif undated and (log.size or 0) > (look.seen.log_size or 0) > 0:
            signs.append((since, "more bytes in the log than at the last look"))
    best = min(signs, default=None)
    return _Movement(best[0] if best else None, best[1] if best else "", tuple(undated))


def _living(look: Look, group: _Group) -> tuple[str, tuple[str, ...]]:
    assert group.main is not None
    main, reading, limits = group.main, look.reading, look.run.timeouts
    life, move = reading.age(main), _movement(look, main)
    how = {
        "argv": "",
        "pidfile": " (by its pidfile)",
        "record": " (its title has changed; known by number, start and program)",
    }
    lives = f"process {main.pid} lives, begun {age(life)} ago{how[main.how]}"
    stepless = look.log.step is None
    stopped = [one for one in group.all if one.stopped and one.role != "helper"]
    if look.log.diverged and not stepless:
        return DIVERGED, (
            f"the loss is {look.log.loss} at step {look.log.step}",
            lives,
            *_moves(move, limits.stall),
        )
    count = f"{group.workers} of {group.expected} workers live"
    if group.expected and group.workers < group.expected and (life > WORKERS_COME or not stepless):
        lost = f"{count}" + (f", {_zombies(group)} zombie children" if _zombies(group) else "")
        return DEGRADED, (lost, lives, *_moves(move, limits.stall))
    workers = (count,) if group.expected and group.expected > 1 else ()
    if stopped:
        who = ", ".join(str(one.pid) for one in stopped)
        how_it_stopped = "traced" if stopped[0].state == "t" else "stopped"
        return STALLED, (
            f"process {who} is {how_it_stopped} (state {stopped[0].state}): it does nothing until continued",
            lives,
        )
    if move.undated and (move.age is None or move.age > limits.stall):
        return UNKNOWN, (*move.undated, lives, "no other sign of movement; look again in a minute")
    if stepless and life <= limits.startup and look.log.loss is None:
        return STARTING, (lives, f"no step yet; it has until {age(limits.startup)} after its start", *workers)
    if move.age is None and life > limits.stall and _blind(look):
        return UNKNOWN, (lives, f"nothing shows whether it moves: {_blind(look)}")
    if move.age is None or move.age > limits.stall:
        old = life if move.age is None else move.age
        return STALLED, (
            f"nothing has moved for {age(old)} (limit {age(limits.stall)})"
            + (f"; the newest sign is {move.what}" if move.what else " since it began"),
            lives,
            *_busy(look, main),
            *workers,
        )
    steps = ("no step could be read in the log",) if stepless else (f"step {look.log.step}",)
    return RUNNING, (lives, *_moves(move, limits.stall), *steps, *move.undated, *workers)


def _blind(look: Look) -> str:
    """Why no movement could have been seen at all; empty where log or checkpoints can be read."""
    log, saves = look.reading.run.log, look.reading.run.checkpoints
    if log.mtime is not None or (saves.root and not saves.error):
        return ""
    return (log.error or "no log") + (
        f"; {saves.root}: {saves.error}" if saves.error else "; no checkpoints are declared"
    )


def _moves(move: _Movement, limit: float) -> tuple[str, ...]:
    return (f"{move.what} moved {age(move.age)} ago (limit {age(limit)})",) if move.age is not None else ()


def _zombies(group: _Group) -> int:
    return sum(one.zombies for one in group.all)


def _busy(look: Look, main: ProcessFacts) -> Iterator[str]:
    """Words on what a run that does not move is at; load is never a reason to call it running."""
    if main.state == "D":
        yield "it waits in the kernel (state D): a disk, a network file system or a driver that does not answer"
    seen = look.seen
    if (
        seen
        and seen.cpu_ticks is not None
        and seen.boot is not None
        and seen.identity == look.reading.identity(main)
    ):
        elapsed = look.reading.clock.boot - seen.boot
        if elapsed >= 1:
            used = (main.cpu_ticks - seen.cpu_ticks) / look.reading.clock.hz / elapsed
            yield f"since the last look it {'spins' if used > 0.5 else 'is idle'} ({100 * used:.0f} % of a core)"
    use = [f"{one.get('index')}: {one.get('use')} %" for one in look.reading.gpus.each]
    if use:
        yield "GPU use says nothing about progress: " + ", ".join(use)
