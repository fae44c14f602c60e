"""Observe a run: one round trip to its host, then the verdict; a host not reached is UNKNOWN, never an error."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from hostkit.errors import DataError, HostkitError, RefusedError, UnreachableError
from hostkit.inventory.models import Inventory, Run
from hostkit.liveness import history
from hostkit.liveness.judge import Judgement, judge
from hostkit.liveness.past import Before, PastObservation
from hostkit.liveness.readings import Reading, reading_of
from hostkit.liveness.status import HopStatus, HostStatus, TrainStatus, last_known, status_of
from hostkit.liveness.verdict import Verdict
from hostkit.sanitize import one_line
from hostkit.transport.programs.run import run_program
from hostkit.transport.route import Route

if TYPE_CHECKING:
    from hostkit.transport.connections import Connections

PROBE_SECONDS = 60.0  # a probe that takes longer hangs on a disk
PCT_SECONDS = 15.0


def observe(
    connections: Connections, inventory: Inventory, run_name: str, log_lines: int = 12
) -> TrainStatus:
    """Return the status of a run. Raises only for faults of the inventory or of this machine."""
    run = inventory.runs[run_name]
    path = history.place(inventory, run_name)
    last = history.recall(path)
    route = connections.route(run.host)
    began = time.time()
    try:
        transport = connections.transport(run.host)
        reply = run_program(
            transport,
            inventory.hosts[run.host].python,
            "probe",
            _request(run_name, run, last),
            timeout=PROBE_SECONDS,
            retry=True,
        )
        ended = time.time()
        reading = reading_of(reply, run_name, host=run.host)
    except (UnreachableError, DataError, RefusedError) as error:
        now = _now(last, Verdict.UNKNOWN, time.time())
        history.remember(path, now)
        return _unreached(connections, run_name, now, error)
    judgement = judge(run, reading, last, here=(began + ended) / 2, here_within=(ended - began) / 2)
    now = _noted(_now(last, judgement.verdict, ended), reading, judgement)
    history.remember(path, now)
    hops = [HopStatus(name=hop.name, kind=hop.kind, state="ok") for hop in route.hops]
    return status_of(run_name, run, reading, judgement, now, hops=hops, lines=log_lines)


def _request(name: str, run: Run, last: PastObservation | None) -> dict[str, Any]:
    process = None
    if last and last.identity:
        process = {**last.identity.model_dump(), "exe": last.exe}
    return {
        "runs": {
            name: {
                "process": run.process.model_dump(),
                "log": {"path": run.log.path, "known": last.log_path if last else None},
                "checkpoints": run.checkpoints.model_dump() if run.checkpoints else None,
                "gpus": run.gpus,
                "last": process,
            }
        }
    }


def _now(last: PastObservation | None, verdict: Verdict, at: float) -> PastObservation:
    """Return what is to be remembered: the verdict and since when; what a look found is added by `_noted`."""
    if last is None:
        return PastObservation(at=at, verdict=verdict, since=at)
    if last.verdict == verdict:
        return last.model_copy(update={"at": at})
    before = Before(verdict=last.verdict, until=at)
    return last.model_copy(update={"at": at, "verdict": verdict, "since": at, "before": before})


def _noted(now: PastObservation, reading: Reading, judgement: Judgement) -> PastObservation:
    facts: dict[str, Any] = {
        "boot_id": reading.host.boot_id,
        "boot": reading.clock.boot,
        "step": judgement.progress.live,
        "log_path": reading.run.log.path,
        "log_size": reading.run.log.size,
    }
    if judgement.verdict != Verdict.UNKNOWN:
        facts.update(known=judgement.verdict, known_at=now.at, known_step=judgement.progress.live)
    mains = [one for one in judgement.processes if one.role in ("trainer", "worker")]
    if mains and judgement.verdict != Verdict.UNKNOWN:
        facts.update(
            identity=reading.identity(mains[0]),
            exe=mains[0].exe,
            argv=mains[0].argv,
            cpu_ticks=mains[0].cpu_ticks,
        )
    return now.model_copy(update=facts)


def _unreached(connections: Connections, name: str, now: PastObservation, error: HostkitError) -> TrainStatus:
    run = connections.inventory.runs[name]
    route = connections.route(run.host)
    failed = error.hop if isinstance(error, UnreachableError) else run.host
    hops = _hops(route, failed, error)
    stood = [hop.name for hop in hops if hop.state == "ok"]
    evidence = [
        f"{failed} was not reached: {error.what}" if isinstance(error, UnreachableError) else str(error)
    ]
    evidence += [f"stood: {', '.join(stood)}"] if stood else []
    evidence += _asked_of_proxmox(connections, route, failed)
    evidence += [f"try: {error.hint}"] if error.hint else []
    return TrainStatus(
        run=name,
        host=HostStatus(name=run.host),
        verdict=Verdict.UNKNOWN,
        exit=Verdict.UNKNOWN.exit,
        at=now.at,
        since=now.since,
        before=now.before.verdict if now.before else None,
        last_known=last_known(now),
        evidence=[one_line(text) for text in evidence],
        hops=hops,
        links=run.links,
    )


def _hops(route: Route, failed: str, error: HostkitError) -> list[HopStatus]:
    out: list[HopStatus] = []
    names = [hop.name for hop in route.hops]
    at = names.index(failed) if failed in names else len(names) - 1
    for number, hop in enumerate(route.hops):
        if number == at:
            answered = not isinstance(error, UnreachableError)
            failure = HopStatus(
                name=hop.name, kind=hop.kind, state="failed", error=error.what, answered=answered
            )
            out.append(failure)
        else:
            out.append(HopStatus(name=hop.name, kind=hop.kind, state="ok" if number < at else "not tried"))
    return out


def _asked_of_proxmox(connections: Connections, route: Route, failed: str) -> list[str]:
    """Where a container did not answer, its Proxmox host knows whether it runs, or is there at all."""
    hop = route.hops[-1]
    if hop.kind != "pct" or failed != hop.name or len(route.hops) < 2:
        return []
    host, vmid = route.hops[-2].name, hop.host.pct
    try:
        done = connections.transport(host).run(["pct", "status", str(vmid)], timeout=PCT_SECONDS)
    except (UnreachableError, DataError) as error:
        return [
            f"{host} was asked for the state of container {vmid}, and did not answer either: {error.what}"
        ]
    said = " ".join((done.text() if done.ok else done.stderr.decode("utf-8", "replace")).split())[:200]
    if not done.ok and "does not exist" in said:
        return [f"CT {vmid} is not on {host} (moved?): {said}"]
    return [f"pct status {vmid} on {host}: {said or f'exit {done.exit}'}"]
