"""Observe runs: one round trip to each host, then the verdicts; a host not reached is UNKNOWN, never an error."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hostkit.errors import DataError, RefusedError, UnreachableError
from hostkit.inventory.models import Inventory, Run
from hostkit.liveness.history import History
from hostkit.liveness.judge import Judgement, judge
from hostkit.liveness.past import Past, PastObservation
from hostkit.liveness.readings import Reading, reading_of
from hostkit.liveness.status import HopStatus, TrainStatus, status_of
from hostkit.liveness.unreached import Failure, failure_of, unreached
from hostkit.liveness.verdict import Verdict
from hostkit.transport.programs.run import run_program

if TYPE_CHECKING:
    from hostkit.transport.connections import Connections

ANSWER_SECONDS = 28.0  # for everything that is asked of a host, logging in included; --timeout sets another
PROXMOX_SECONDS = 6.0  # of them, kept for the state that Proxmox knows of a container
HOSTS_AT_ONCE = 64


@dataclass(frozen=True)
class Observed:
    """What one look at a run gave: what is shown, and what is to be remembered."""

    status: TrainStatus
    now: PastObservation


def observe(
    connections: Connections,
    inventory: Inventory,
    run: str,
    log_lines: int = 12,
    *,
    reader: str | None = None,
) -> TrainStatus:
    """Return the status of a run. Raises only for faults of the inventory or of this machine."""
    return observe_all(connections, inventory, [run], log_lines, reader=reader)[0]


def observe_all(
    connections: Connections,
    inventory: Inventory,
    runs: Iterable[str],
    log_lines: int = 12,
    *,
    reader: str | None = None,
) -> list[TrainStatus]:
    """Return the statuses of runs, and remember them. `reader`: whom they are shown to, if anybody.

    The history that this machine keeps is read before, and written after; `ask` in between touches no file.
    """
    histories = {run: History.of(inventory, run) for run in runs}
    pasts = {run: history.read(reader) for run, history in histories.items()}
    observed = ask(connections, inventory, pasts, log_lines)
    for run, history in histories.items():
        history.append(pasts[run], observed[run].now, reader)
    return [observed[run].status for run in histories]


def ask(
    connections: Connections, inventory: Inventory, pasts: dict[str, Past], log_lines: int = 12
) -> dict[str, Observed]:
    """Observe runs, given what is remembered of each: all hosts at once, each in one round trip for all of its runs."""
    by_host: dict[str, dict[str, Past]] = {}
    for run, past in pasts.items():
        by_host.setdefault(inventory.runs[run].host, {})[run] = past
    if len(by_host) == 1:
        return _ask_host(connections, inventory, *by_host.popitem(), log_lines)
    # imported late: its logging costs more than a status of one host needs
    from concurrent.futures import ThreadPoolExecutor

    observed: dict[str, Observed] = {}
    with ThreadPoolExecutor(min(HOSTS_AT_ONCE, len(by_host) or 1)) as pool:
        for part in pool.map(
            lambda host: _ask_host(connections, inventory, host, by_host[host], log_lines), by_host
        ):
            observed.update(part)
    return observed


def _ask_host(
    connections: Connections, inventory: Inventory, host: str, pasts: dict[str, Past], log_lines: int
) -> dict[str, Observed]:
    route = connections.route(host)
    hops = [HopStatus(name=hop.name, kind=hop.kind, state="ok") for hop in route.hops]
    began = time.time()
    deadline = connections.deadline or time.monotonic() + ANSWER_SECONDS
    kept = min(PROXMOX_SECONDS, (deadline - time.monotonic()) / 3) if route.hops[-1].kind == "pct" else 0.0
    try:
        reply = run_program(
            connections.transport(host, deadline=deadline - kept),
            inventory.hosts[host].python,
            "probe",
            {"runs": {run: _request(inventory.runs[run], past) for run, past in pasts.items()}},
            retry=True,
        )
        ended = time.time()
    except (UnreachableError, DataError, RefusedError) as error:
        failure = failure_of(connections, route, error, deadline)
        return {run: _without_reading(inventory, run, past, failure) for run, past in pasts.items()}
    observed: dict[str, Observed] = {}
    failures: dict[str, Failure] = {}
    for run, past in pasts.items():
        try:
            reading = reading_of(reply, run, host=host)
        except DataError as error:
            message = str(error)  # often the same for all: then what lies behind it is asked once
            if message not in failures:
                failures[message] = failure_of(connections, route, error, deadline)
            observed[run] = _without_reading(inventory, run, past, failures[message])
            continue
        judgement = judge(
            inventory.runs[run], reading, past, here=(began + ended) / 2, here_within=(ended - began) / 2
        )
        now = _with_facts(past.then(judgement.verdict, ended), reading, judgement)
        status = status_of(run, inventory.runs[run], reading, judgement, now, hops=hops, lines=log_lines)
        observed[run] = Observed(status, now)
    return observed


def _without_reading(inventory: Inventory, run: str, past: Past, failure: Failure) -> Observed:
    now = past.then(Verdict.UNKNOWN, time.time())
    return Observed(unreached(run, inventory.runs[run], now, failure), now)


def _request(run: Run, past: Past) -> dict[str, Any]:
    last = past.last
    process = None
    if last and last.identity:
        process = {**last.identity.model_dump(), "exe": last.exe}
    return {
        "process": run.process.model_dump(),
        "log": {
            "path": run.log.path,
            "known": last.log_path if last else None,
            "inode": last.log_inode if last else None,
        },
        "checkpoints": run.checkpoints.model_dump() if run.checkpoints else None,
        "gpus": run.gpus,
        "last": process,
    }


def _with_facts(now: PastObservation, reading: Reading, judgement: Judgement) -> PastObservation:
    facts: dict[str, Any] = {
        "boot_id": reading.host.boot_id,
        "boot": reading.clock.boot,
        "step": judgement.progress.live,
        "log_path": reading.run.log.path,
        "log_inode": reading.run.log.inode,
        "log_size": reading.run.log.size,
    }
    if judgement.verdict != Verdict.UNKNOWN:
        facts.update(known=judgement.verdict.value, known_at=now.at, known_step=judgement.progress.live)
    mains = [one for one in judgement.processes if one.role in ("trainer", "worker")]
    if mains and judgement.verdict != Verdict.UNKNOWN:
        facts.update(
            identity=reading.identity(mains[0]),
            exe=mains[0].exe,
            argv=mains[0].argv,
            cpu_ticks=mains[0].cpu_ticks,
        )
    return now.model_copy(update=facts)
