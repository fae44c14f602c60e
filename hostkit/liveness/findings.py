"""What stands beside a verdict: each finding with its severity and what to do about it (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from hostkit.formatting import age, moment, size
from hostkit.inventory.models import Run
from hostkit.liveness.logs import LogReading
from hostkit.liveness.progress import Progress
from hostkit.liveness.readings import SKEW, ProcessFacts, Reading
from hostkit.liveness.seen import Seen

INODES = 16  # a save makes a folder and a few files


class Finding(BaseModel):
    """`severity` 1: look at it today; 2: now."""

    model_config = ConfigDict(frozen=True)

    kind: str
    severity: int
    text: str
    advice: str

    def document(self) -> dict[str, object]:
        return {"kind": self.kind, "severity": self.severity, "text": self.text, "try": self.advice}


@dataclass(frozen=True)
class Look:
    """All that findings and verdict are made of. `here`: this machine's clock when the far one was read."""

    run: Run
    reading: Reading
    log: LogReading
    progress: Progress
    main: ProcessFacts | None
    seen: Seen | None
    here: float | None = None
    here_within: float = 0.0  # half the round trip: the moment of the reading is known this well

    @property
    def log_age(self) -> float | None:
        mtime = self.reading.run.log.mtime
        return None if mtime is None else self.reading.clock.files - mtime


def findings(look: Look) -> list[Finding]:
    """Return every finding, the gravest first."""
    found = [*_clocks(look), *_log(look), *_pidfile(look)]
    if look.main is not None:
        found += [*_overdue(look), *_room(look), *_gpus(look), *_restarted(look)]
    return sorted(found, key=lambda one: -one.severity)


def _clocks(look: Look) -> Iterator[Finding]:
    clock = look.reading.clock
    if look.here is not None:
        ahead = clock.wall - look.here
        if abs(ahead) > SKEW + look.here_within:
            way = "ahead of" if ahead > 0 else "behind"
            yield Finding(
                kind="clock-skew",
                severity=1,
                text=f"clock skew: the host's clock is {age(abs(ahead))} {way} this machine's; "
                "ages here are by the host's own clock",
                advice="see which of the two is wrong: `timedatectl` on both",
            )
    if clock.kernel is not None and abs(clock.kernel - clock.wall) > SKEW:
        yield Finding(
            kind="clock-skew",
            severity=1,
            text=f"clock skew: programs on the host are told {moment(clock.wall)}, "
            f"its kernel dates files {moment(clock.kernel)}",
            advice="look for libfaketime (LD_PRELOAD, /etc/ld.so.preload) on the host",
        )
    log_age = look.log_age
    if log_age is not None and log_age < -SKEW:
        yield Finding(
            kind="clock-skew",
            severity=1,
            text=f"clock skew: the log is dated {age(-log_age)} in the future, so its age says nothing",
            advice="was the host's clock set back, or the file touched? compare `date` with `stat` of the log there",
        )
    newest = look.progress.newest
    if newest is not None and newest.age is not None and newest.age < -SKEW:
        yield Finding(
            kind="clock-skew",
            severity=1,
            text=f"clock skew: checkpoint {newest.candidate.step} is dated {age(-newest.age)} in the future",
            advice="compare `date` with `stat` of the checkpoint on the host",
        )


def _log(look: Look) -> Iterator[Finding]:
    log = look.reading.run.log
    if look.main is not None and (log.deleted or log.rotated or log.renamed):
        what = (
            f"renamed to {log.renamed}"
            if log.renamed
            else "deleted"
            if log.deleted
            else "replaced by another file"
        )
        yield Finding(
            kind="log-rotated",
            severity=1,
            text=f"the log {log.path} was {what} while the process goes on writing it; it was read through the process",
            advice="rotate with copytruncate, or have the trainer open its log anew; a deleted log is lost at its end",
        )
    newer = [one for one in log.others if log.mtime is None or one.mtime > log.mtime + 60]
    if look.main is not None and log.origin == "inventory" and log.held is False and newer:
        yield Finding(
            kind="log-not-the-process's",
            severity=1,
            text=f"the log {log.path} is not the process's: process {newer[0].pid} writes {newer[0].path}",
            advice="set log.path in the inventory to that file",
        )


def _pidfile(look: Look) -> Iterator[Finding]:
    pidfile = look.reading.run.pidfile
    if pidfile is not None and not pidfile.valid:
        yield Finding(
            kind="pidfile-invalid",
            severity=1,
            text=f"the pidfile {pidfile.path} names no process of the run: {pidfile.reason}",
            advice="declare the run's script or module in the inventory instead; they need no file",
        )


def _overdue(look: Look) -> Iterator[Finding]:
    """A save is overdue when the first one missing was due longer than `save` ago, and the process has lived so long.

    Without a rate its lateness is not known: then two missing saves are needed.
    """
    checkpoints, progress = look.run.checkpoints, look.progress
    if checkpoints is None or not checkpoints.every or progress.live is None or look.main is None:
        return
    every, saved = checkpoints.every, progress.saved
    last = progress.live // every * every
    if last <= 0 or (saved is not None and saved >= last - 1) or look.reading.run.checkpoints.error:
        return
    first = every if saved is None else min(last, ((saved + 1) // every + 1) * every)
    life = look.reading.age(look.main)
    if progress.newest is not None and progress.newest.age is not None:
        life = min(life, progress.newest.age)  # it cannot be later than the last save is old
    late = min(life, (progress.live - first) / progress.rate) if progress.rate else None
    if life <= look.run.timeouts.save or (first == last if late is None else late <= look.run.timeouts.save):
        return
    why = f", {age(late)} ago" if late is not None else ""
    has = (
        f"the newest complete one is step {progress.saved}" if progress.saved is not None else "there is none"
    )
    half = [
        one.candidate
        for one in progress.saves
        if not one.candidate.complete and one.candidate.step >= last - 1
    ]
    yield Finding(
        kind="save-overdue",
        severity=1,
        text=f"save overdue: step {first} was due{why}, and {has}"
        + (f"; step {half[0].step} is incomplete ({half[0].reason})" if half else ""),
        advice="look for an error of the save in the log, and at the room under " + checkpoints.root,
    )


def _room(look: Look) -> Iterator[Finding]:
    saves = look.reading.run.checkpoints
    sizes = [
        save.candidate.size for save in look.progress.saves if save.candidate.complete and save.candidate.size
    ]
    if saves.space is None:
        return
    free = saves.space.free_root if look.main is not None and look.main.uid == 0 else saves.space.free
    if sizes and free < sizes[0]:
        yield Finding(
            kind="save-will-not-fit",
            severity=2,
            text=f"the next save will not fit: it needs {size(sizes[0])}, {size(free)} are free under {saves.root}",
            advice="make room there before the next save: move old checkpoints away (hostkit removes nothing)",
        )
    if saves.space.files and saves.space.files_free < INODES:
        yield Finding(
            kind="save-will-not-fit",
            severity=2,
            text=f"the next save will not fit: {saves.space.files_free} inodes are left under {saves.root}",
            advice="remove small files there; `df -i` shows the file system",
        )


def _gpus(look: Look) -> Iterator[Finding]:
    gpus = look.reading.gpus
    there = {one.get("index") for one in gpus.each}
    lost = [number for number in look.run.gpus if str(number) not in there]
    if gpus.state == "read" and lost:
        yield Finding(
            kind="gpu-lost",
            severity=2,
            text="GPU lost: " + ", ".join(map(str, lost)) + " declared, and nvidia-smi does not list it",
            advice="look for Xid lines in the kernel log (`dmesg`) of the physical host",
        )


def _restarted(look: Look) -> Iterator[Finding]:
    seen, main = look.seen, look.main
    if seen is None or seen.identity is None or main is None or look.reading.identity(main) == seen.identity:
        return
    if seen.identity.pid in {
        one.pid for one in look.reading.run.processes if look.reading.identity(one) == seen.identity
    }:
        return
    gone, come = [w for w in seen.argv if w not in main.argv], [w for w in main.argv if w not in seen.argv]
    difference = "with the same arguments"
    if gone or come:
        difference = f"arguments gone: {' '.join(gone) or 'none'}; new: {' '.join(come) or 'none'}"
    began = age(look.reading.age(main))
    yield Finding(
        kind="restarted",
        severity=1,
        text=f"RESTARTED: process {seen.identity.pid} is now {main.pid}, begun {began} ago, {difference}",
        advice="find out what ended the earlier attempt; checkpoints above the live step are left over from it",
    )
