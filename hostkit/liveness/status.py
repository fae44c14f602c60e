"""The answer of train-status: verdict, evidence, findings and all figures, as one document (pure)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from hostkit.formatting import age, moment
from hostkit.identity import Identity
from hostkit.inventory.models import Run
from hostkit.journal import masked
from hostkit.liveness.findings import Finding
from hostkit.liveness.judge import Judgement
from hostkit.liveness.past import PastObservation
from hostkit.liveness.progress import Progress, Save
from hostkit.liveness.readings import ProcessFacts, Reading
from hostkit.liveness.verdict import Verdict
from hostkit.strictjson import finite

SCHEMA = "hostkit.train-status/1"


class Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class HopStatus(Part):
    """A hop of the route. `state`: ok, failed, or not tried (a hop before it failed)."""

    name: str
    kind: str
    state: Literal["ok", "failed", "not tried"]
    error: str | None = None
    answered: bool = Field(False, exclude=True)  # it was reached, and what it answered is an error


class StepStatus(Part):
    """Steps are counts, times seconds unless the name says otherwise; None is "not known"."""

    live: int | None = None
    live_at_most: int | None = None
    saved: int | None = None
    lag: int | None = None
    lag_percent: float | None = None
    lag_minutes: float | None = None
    total: int | None = None
    percent: float | None = None
    rate: float | None = None
    rate_from: str = "not measured"
    eta: float | None = None
    next_save: int | None = None
    next_save_in: float | None = None
    loss: float | None = None
    loss_text: str | None = None  # also where the loss is no number


class ProcessStatus(Part):
    identity: Identity
    pid: int
    namespace: str  # the inventory host in whose pid namespace the number counts
    role: str
    known_by: str
    state: str
    age: float
    cpu_seconds: float
    uid: int
    argv: list[str]
    exe: str | None
    cwd: str | None


class CheckpointStatus(Part):
    """`attempt`: live, or earlier (its step is above the live step); `newest`: the one that an evaluation takes."""

    step: int
    path: str
    format: str | None
    complete: bool
    reason: str | None
    size: int | None
    age: float | None
    mtime_ns: int | None
    inode: int | None
    dev: int | None
    writer: bool | None
    attempt: str
    before_start: bool
    newest: bool


class LogStatus(Part):
    path: str | None = None
    found: str | None = None
    size: int | None = None
    age: float | None = None
    inode: int | None = None
    error: str | None = None
    lines: list[str] = []


class HostStatus(Part):
    name: str
    clock: float | None = None
    boot_id: str | None = None
    pid_ns: int | None = None
    python: str | None = None
    memory_free: int | None = None
    memory_total: int | None = None
    disk_free: int | None = None
    load: list[float] = []
    gpus: list[dict[str, str]] = []
    gpus_read: str | None = None


class TrainStatus(Part):
    run: str
    host: HostStatus
    verdict: Verdict
    exit: int
    at: float
    since: float
    before: str | None = None
    last_known: str | None = None  # where the verdict is UNKNOWN: the last one that was not, and when
    evidence: list[str]
    findings: list[Finding] = []
    step: StepStatus = StepStatus()
    processes: list[ProcessStatus] = []
    checkpoints: list[CheckpointStatus] = []
    checkpoints_error: str | None = None  # why they could not be listed: then an empty list says nothing
    started_ns: int | None = (
        None  # files at least this new are of the live attempt, by the clock that dates them
    )
    log: LogStatus = LogStatus()
    hops: list[HopStatus] = []
    links: dict[str, str] = {}

    @property
    def identity(self) -> Identity | None:
        """The run's own process, if it lives and is known for certain."""
        return self.processes[0].identity if self.processes and self.verdict != Verdict.UNKNOWN else None

    def document(self) -> dict[str, Any]:
        """Return the `hostkit.train-status/1` document; strict JSON, so that a NaN stands as null beside its text."""
        out = finite(self.model_dump(mode="json"))
        assert isinstance(out, dict)
        out.update(
            at=moment(self.at),
            since=moment(self.since),
            findings=[finding.document() for finding in self.findings],
        )
        return {"schema": SCHEMA, **out}


def status_of(
    name: str,
    run: Run,
    reading: Reading,
    judgement: Judgement,
    now: PastObservation,
    *,
    hops: list[HopStatus],
    lines: int,
) -> TrainStatus:
    """Put a judged reading into the form that people and programs get."""
    facts, log = reading.run, judgement.log
    return TrainStatus(
        run=name,
        host=HostStatus(
            name=run.host,
            clock=reading.clock.wall,
            boot_id=reading.host.boot_id,
            pid_ns=reading.host.pid_ns,
            python=reading.host.python,
            memory_free=reading.memory.get("free"),
            memory_total=reading.memory.get("total"),
            disk_free=facts.checkpoints.space.free if facts.checkpoints.space else None,
            load=reading.load,
            gpus=reading.gpus.each,
            gpus_read=reading.gpus.state,
        ),
        verdict=judgement.verdict,
        exit=judgement.exit,
        at=now.at,
        since=now.since,
        before=now.before.verdict if now.before else None,
        last_known=last_known(now) if judgement.verdict == Verdict.UNKNOWN else None,
        evidence=list(judgement.evidence),
        findings=list(judgement.findings),
        step=_step(judgement.progress, log.loss),
        processes=[_process(process, reading, run.host) for process in _mains_first(judgement.processes)],
        checkpoints=[_checkpoint(save) for save in judgement.progress.saves],
        checkpoints_error=facts.checkpoints.error,
        started_ns=judgement.progress.started_ns,
        log=LogStatus(
            path=facts.log.path,
            found=facts.log.origin,
            size=facts.log.size,
            age=None if facts.log.mtime is None else reading.clock.files - facts.log.mtime,
            inode=facts.log.inode,
            error=facts.log.error,
            lines=list(log.lines[-lines:]) if lines > 0 else [],
        ),
        hops=hops,
        links=run.links,
    )


def last_known(now: PastObservation) -> str | None:
    """Say what was last known of a run that cannot be judged now."""
    if now.known is None or now.known_at is None:
        return None
    step = f" at step {now.known_step}" if now.known_step is not None else ""
    return f"{now.known}{step}, {age(max(0.0, now.at - now.known_at))} ago ({moment(now.known_at)})"


def _mains_first(processes: tuple[ProcessFacts, ...]) -> list[ProcessFacts]:
    order = ("trainer", "worker", "launcher", "helper")
    return sorted(processes, key=lambda process: order.index(process.role))


def _step(progress: Progress, loss: float | None) -> StepStatus:
    live, total = progress.live, progress.total
    return StepStatus(
        live=live,
        live_at_most=progress.live_at_most,
        saved=progress.saved,
        lag=progress.lag,
        lag_percent=progress.lag_percent,
        lag_minutes=progress.lag_minutes,
        total=total,
        percent=100 * live / total if live is not None and total else None,
        rate=progress.rate,
        rate_from=progress.rate_from,
        eta=progress.eta,
        next_save=progress.next_save,
        next_save_in=progress.next_save_in,
        loss=loss,
        loss_text=None if loss is None else f"{loss:.6g}",
    )


def _process(process: ProcessFacts, reading: Reading, host: str) -> ProcessStatus:
    return ProcessStatus(
        identity=reading.identity(process),
        pid=process.pid,
        namespace=host,
        role=process.role,
        known_by=process.how,
        state=process.state,
        age=reading.age(process),
        cpu_seconds=process.cpu_ticks / reading.clock.hz,
        uid=process.uid,
        argv=masked(process.argv),  # a status is archived, and an archive may be shared
        exe=process.exe,
        cwd=process.cwd,
    )


def _checkpoint(save: Save) -> CheckpointStatus:
    candidate = save.candidate
    return CheckpointStatus(
        **candidate.model_dump(include={"step", "path", "format", "complete", "reason", "size"}),
        **candidate.model_dump(include={"mtime_ns", "inode", "dev", "writer"}),
        age=save.age,
        attempt=save.attempt,
        before_start=save.before_start,
        newest=save.newest,
    )
