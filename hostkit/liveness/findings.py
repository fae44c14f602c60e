"""What is wrong besides the verdict: each finding with its severity and what to do about it (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict

from hostkit.formatting import age, moment, size
from hostkit.liveness.observation import Observation
from hostkit.liveness.readings import SKEW

INODES = 16  # a save makes a folder and a few files


class Finding(BaseModel):
    """`severity` 1: warning; 2: critical."""

    model_config = ConfigDict(frozen=True)

    kind: str
    severity: int
    text: str
    advice: str

    def document(self) -> dict[str, object]:
        return {"kind": self.kind, "severity": self.severity, "text": self.text, "try": self.advice}


def findings(observation: Observation) -> list[Finding]:
    """Return every finding, the most severe first."""
    out = [*_clocks(observation), *_log(observation), *_pidfile(observation)]
    if observation.main is not None:
        out += [
            *_first_step(observation),
            *_overdue(observation),
            *_room(observation),
            *_gpus(observation),
            *_restarted(observation),
        ]
    return sorted(out, key=lambda finding: -finding.severity)


def _clocks(observation: Observation) -> Iterator[Finding]:
    clock = observation.reading.clock
    if observation.here is not None:
        ahead = clock.wall - observation.here
        if abs(ahead) > SKEW + observation.here_within:
            way = "ahead of" if ahead > 0 else "behind"
            yield Finding(
                kind="clock-skew",
                severity=1,
                text=f"clock skew: the host's clock is {age(abs(ahead))} {way} this machine's; "
                "ages shown are by the host's clock",
                advice="run `timedatectl` on both machines to find the wrong one",
            )
    if clock.kernel is not None and abs(clock.kernel - clock.wall) > SKEW:
        yield Finding(
            kind="clock-skew",
            severity=1,
            text=f"clock skew: programs on the host see {moment(clock.wall)}, "
            f"its kernel dates files {moment(clock.kernel)}",
            advice="check for libfaketime (LD_PRELOAD, /etc/ld.so.preload) on the host",
        )
    log_age = observation.log_age
    if log_age is not None and log_age < -SKEW:
        yield Finding(
            kind="clock-skew",
            severity=1,
            text=f"clock skew: the log is dated {age(-log_age)} in the future, so its age is unknown",
            advice="was the host's clock set back, or the file touched? Compare `date` with `stat` of the log there",
        )
    newest = observation.progress.newest
    if newest is not None and newest.age is not None and newest.age < -SKEW:
        yield Finding(
            kind="clock-skew",
            severity=1,
            text=f"clock skew: checkpoint {newest.candidate.step} is dated {age(-newest.age)} in the future",
            advice="compare `date` with `stat` of the checkpoint on the host",
        )


def _log(observation: Observation) -> Iterator[Finding]:
    log = observation.reading.run.log
    if observation.main is not None and log.renamed and observation.log.step is not None:
        yield Finding(
            kind="log-rotated",
            severity=1,
            text=f"the process does not write {log.path}: it has {log.renamed} open, which was read instead",
            advice="rotate with copytruncate, or have the trainer open its log anew; else set log.path to that file",
        )
    elif observation.main is not None and not log.renamed and (log.deleted or log.rotated):
        what = "deleted" if log.deleted else "replaced by another file"
        yield Finding(
            kind="log-rotated",
            severity=1,
            text=f"the log {log.path} was {what} while the process still writes it; it was read through the process",
            advice="rotate with copytruncate, or have the trainer open its log anew; a deleted log is lost at its end",
        )
    newer = [file for file in log.others if log.mtime is None or file.mtime > log.mtime + 60]
    if observation.main is not None and log.origin == "inventory" and log.held is False and newer:
        yield Finding(
            kind="log-not-the-process's",
            severity=1,
            text=f"the log {log.path} is not the process's: process {newer[0].pid} writes {newer[0].path}",
            advice="set log.path in the inventory to that file",
        )


def _pidfile(observation: Observation) -> Iterator[Finding]:
    pidfile = observation.reading.run.pidfile
    if pidfile is not None and not pidfile.valid:
        yield Finding(
            kind="pidfile-invalid",
            severity=1,
            text=f"the pidfile {pidfile.path} does not name the run: {pidfile.reason}",
            advice="declare process.script or process.module instead; they need no file",
        )


def _first_step(observation: Observation) -> Iterator[Finding]:
    """`startup` may be shorter than `stall`: then a run without a step is late before it counts as stalled."""
    limit, main, log = observation.run.timeouts.startup, observation.main, observation.log
    if (
        main is None
        or log.step is not None
        or log.loss is not None
        or observation.progress.newest is not None
    ):
        return
    life, log_age = observation.reading.age(main), observation.log_age
    silent = log_age is None or log_age > life + 1
    if silent and limit < life <= observation.run.timeouts.stall:
        yield Finding(
            kind="first-step-overdue",
            severity=1,
            text=f"no step yet, {age(life)} after its start (startup is {age(limit)})",
            advice="see the end of the log; raise timeouts.startup if it needs longer",
        )


def _overdue(observation: Observation) -> Iterator[Finding]:
    """A save is overdue when the first one missing was due longer than `save` ago, and the process has lived so long.

    Without a rate its lateness is not known: then two missing saves are needed.
    """
    checkpoints, progress = observation.run.checkpoints, observation.progress
    if checkpoints is None or not checkpoints.every or progress.live is None or observation.main is None:
        return
    every, saved = checkpoints.every, progress.saved
    last = progress.live // every * every
    if last <= 0 or (saved is not None and saved >= last - 1) or observation.reading.run.checkpoints.error:
        return
    first = every if saved is None else min(last, ((saved + 1) // every + 1) * every)
    life = observation.reading.age(observation.main)
    if progress.newest is not None and progress.newest.age is not None:
        life = min(life, progress.newest.age)  # it cannot be later than the last save is old
    late = min(life, (progress.live - first) / progress.rate) if progress.rate else None
    limit = observation.run.timeouts.save
    if life <= limit or (first == last if late is None else late <= limit):
        return
    why = f", {age(late)} ago" if late is not None else ""
    has = (
        f"the newest complete one is step {progress.saved}" if progress.saved is not None else "there is none"
    )
    half = [
        save.candidate
        for save in progress.saves
        if not save.candidate.complete and save.candidate.step >= last - 1
    ]
    yield Finding(
        kind="save-overdue",
        severity=1,
        text=f"save overdue: step {first} was due{why}, and {has}"
        + (f"; step {half[0].step} is incomplete ({half[0].reason})" if half else ""),
        advice="look for a save error in the log, and check free space under " + checkpoints.root,
    )


def _room(observation: Observation) -> Iterator[Finding]:
    saves = observation.reading.run.checkpoints
    sizes = [
        save.candidate.size
        for save in observation.progress.saves
        if save.candidate.complete and save.candidate.size
    ]
    if saves.space is None:
        return
    free = (
        saves.space.free_root
        if observation.main is not None and observation.main.uid == 0
        else saves.space.free
    )
    if sizes and free < sizes[0]:
        yield Finding(
            kind="save-will-not-fit",
            severity=2,
            text=f"the next save will not fit: it needs {size(sizes[0])}, and {size(free)} is free under {saves.root}",
            advice="free space before the next save: move old checkpoints away (hostkit removes nothing)",
        )
    if saves.space.files and saves.space.files_free < INODES:
        yield Finding(
            kind="save-will-not-fit",
            severity=2,
            text=f"the next save will not fit: {saves.space.files_free} inodes are left under {saves.root}",
            advice="remove small files there; `df -i` shows the file system",
        )


def _gpus(observation: Observation) -> Iterator[Finding]:
    gpus = observation.reading.gpus
    listed = {gpu.get("index") for gpu in gpus.each}
    lost = [number for number in observation.run.gpus if str(number) not in listed]
    if gpus.state == "read" and lost:
        yield Finding(
            kind="gpu-lost",
            severity=2,
            text="GPU lost: " + ", ".join(map(str, lost)) + " declared, but not listed by nvidia-smi",
            advice="look for Xid lines in the kernel log (`dmesg`) of the physical host",
        )


def _restarted(observation: Observation) -> Iterator[Finding]:
    last, main = observation.past.unread_from, observation.main
    if (
        last is None
        or last.identity is None
        or main is None
        or observation.reading.identity(main) == last.identity
    ):
        return
    if last.identity.pid in {
        process.pid
        for process in observation.reading.run.processes
        if observation.reading.identity(process) == last.identity
    }:
        return
    removed = [word for word in last.argv if word not in main.argv]
    added = [word for word in main.argv if word not in last.argv]
    difference = "with the same arguments"
    if removed or added:
        difference = f"arguments removed: {' '.join(removed) or 'none'}; added: {' '.join(added) or 'none'}"
    began = age(observation.reading.age(main))
    yield Finding(
        kind="restarted",
        severity=1,
        text=f"RESTARTED: process {last.identity.pid} is now {main.pid}, started {began} ago, {difference}",
        advice="find out what ended the earlier attempt; checkpoints above the live step are from it",
    )
