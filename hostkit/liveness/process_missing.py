"""The verdict on a run without a process: UNKNOWN, FINISHED or DEAD (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from hostkit.formatting import age
from hostkit.liveness.observation import Observation
from hostkit.liveness.readings import SKEW, ProcessFacts
from hostkit.liveness.verdict import Verdict

_MENTIONS = "only mentions it"  # what the probe says of a process that does not run the script


def without_process(observation: Observation) -> tuple[Verdict, tuple[str, ...]]:
    reading, facts = observation.reading, observation.reading.run
    context = tuple(_context(observation))
    doubts = tuple(_doubts(observation))
    if doubts:
        return Verdict.UNKNOWN, (*doubts, *context)
    newest = min((save.age for save in observation.progress.saves if save.age is not None), default=None)
    if observation.log_age is None and newest is None:
        where = [text for text in (facts.log.path, facts.checkpoints.root) if text]
        return Verdict.UNKNOWN, (
            "never seen here: no process, no log and no checkpoint; is the inventory right?",
            *((f"searched {' and '.join(where)}",) if where else ()),
            *context,
        )
    done = _finished(observation)
    if done:
        return Verdict.FINISHED, ("the run has no process", done, *context)
    short = _ended_short(observation)
    stall = observation.run.timeouts.stall
    for what, old in (("log", observation.log_age), ("newest checkpoint", newest)):
        if old is None:
            continue
        if old < -SKEW:
            return Verdict.UNKNOWN, (
                f"no process, and the {what} is dated {age(-old)} in the future: its age is unknown",
                *context,
            )
        if old <= stall:
            return Verdict.UNKNOWN, (
                f"no process, yet the {what} was written {age(old)} ago (limit {age(stall)}): "
                f"just ended, restarting, or another writer? DEAD if nothing changes for {age(stall - old)}",
                *context,
                *short,
            )
    trace = (
        f"its log has been silent for {age(observation.log_age)}"
        if observation.log_age is not None
        else f"no log; its newest checkpoint is {age(newest or 0)} old"
    )
    seen = (
        f"none of the {reading.table.pids} processes is the run (pid 1 and all users' processes are visible)"
    )
    return Verdict.DEAD, (seen, f"{trace} (limit {age(stall)})", *short, *context)


def _doubts(observation: Observation) -> Iterator[str]:
    """Why "no process was found" does not mean that there is none."""
    reading, facts = observation.reading, observation.reading.run
    for process in facts.titles:
        yield (
            f"process {process.pid} is a python under a changed title ({' '.join(process.argv)[:80]!r}): "
            "it may be the run; declare process.pidfile or process.cwd to make sure"
        )
    for process in facts.near:
        if process.doubt:
            yield f"process {process.pid} fits, but {process.why}: it may be the run"
    gap = reading.table.gap()
    if gap:
        yield f"no process of the run is visible, but {gap}: log in as root or as the run's user"
    for process in facts.log.writers:
        if not process.wrapper and process.pid not in {title.pid for title in facts.titles}:
            command = " ".join(process.argv)[:100]
            yield f"no process fits, yet process {process.pid} writes the log (is the inventory right?): {command}"
    if facts.log.error and not facts.log.missing and facts.log.origin == "inventory":
        yield f"the run has no process, and the log {facts.log.path} cannot be read: {facts.log.error}"
    if facts.checkpoints.error and facts.log.mtime is None and "No such file" not in facts.checkpoints.error:
        yield f"{facts.checkpoints.root} cannot be read: {facts.checkpoints.error}"


def _context(observation: Observation) -> Iterator[str]:
    """What else is known where the run has no process."""
    facts = observation.reading.run
    if facts.pidfile is not None and not facts.pidfile.valid:
        yield f"pidfile {facts.pidfile.path}: {facts.pidfile.reason}"
    if facts.record is not None:
        became = {
            "gone": "is gone",
            "zombie": "has ended (a zombie, not yet reaped)",
            "reused": "has ended; its pid belongs to another process now",
            "other boot": "is gone: the host or the container was restarted",
        }
        if facts.record.state in became:
            yield f"process {facts.record.pid}, the run when last seen, {became[facts.record.state]}"
    zombies = [process for process in facts.zombies if _was_the_run(process, observation)]
    if zombies:
        named = ", ".join(f"{process.pid} [{process.comm}] of parent {process.ppid}" for process in zombies)
        yield f"zombies (ended, not yet reaped): {named}"
    for pid in facts.gone:
        yield f"process {pid} ended during the probe"
    for process in facts.near:
        if not process.doubt and process.why != _MENTIONS:
            yield f"not counted: process {process.pid} {process.why}"
    mention = [str(process.pid) for process in facts.near if process.why == _MENTIONS]
    if mention:
        yield f"not counted (they only mention it): {', '.join(mention)}"
    if facts.log.missing:
        yield f"the log {facts.log.path} does not exist"
    if observation.log.step is not None:
        of = f" of {observation.progress.total}" if observation.progress.total else ""
        loss = f", with a loss of {observation.log.loss}" if observation.log.diverged else ""
        yield f"the log's last step is {observation.log.step}{of}{loss}"


def _was_the_run(zombie: ProcessFacts, observation: Observation) -> bool:
    """Whether an ended process, of which only name and parent are left, is known to have been of the run.

    Process 1 adopts everybody's orphans, so that to be its child says nothing; nor does `python3` as a name.
    """
    facts, process = observation.reading.run, observation.run.process
    if facts.record is not None and facts.record.pid == zombie.pid:
        return False  # context by its record already
    if process.script and zombie.comm == process.script.rsplit("/", 1)[-1][:15]:
        return True
    # a process with other args has zombies of its own
    mentions = [process for process in facts.near if process.why == _MENTIONS]
    return zombie.ppid in {process.pid for process in (*mentions, *facts.log.writers) if process.pid != 1}


def _finished(observation: Observation) -> str | None:
    total, log = observation.run.total_steps, observation.log
    if total and log.step is not None and log.step + 1 >= total:
        return f"the log's last step is {log.step} of {total}"
    if total and observation.progress.saved is not None and observation.progress.saved >= total:
        return f"the checkpoint of the last step, {observation.progress.saved}, is complete"
    if log.finished is not None and not _ended_short(observation):
        return f"the log ends with the declared end marker: {log.finished[:120]}"
    return None


def _ended_short(observation: Observation) -> tuple[str, ...]:
    total, log = observation.run.total_steps, observation.log
    if (
        log.finished is not None
        and total
        and log.step is not None
        and log.step + max(1, log.interval) < total
    ):
        return (f"the log says that it is done, but at step {log.step} of {total}",)
    return ()
