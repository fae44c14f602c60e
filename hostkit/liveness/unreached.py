"""The status of runs whose host was not reached, or did not answer as it should: UNKNOWN, naming hop and reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hostkit.errors import DataError, DeadlineError, HostkitError, RemoteTimeoutError, UnreachableError
from hostkit.inventory.models import Run
from hostkit.liveness.past import PastObservation
from hostkit.liveness.status import HopStatus, HostStatus, TrainStatus, last_known
from hostkit.liveness.verdict import Verdict
from hostkit.sanitize import one_line
from hostkit.transport.route import Route

if TYPE_CHECKING:
    from hostkit.transport.connections import Connections


@dataclass(frozen=True)
class Failure:
    """Why a host gave no reading: the same for each of its runs."""

    evidence: tuple[str, ...]
    hops: tuple[HopStatus, ...]


def failure_of(connections: Connections, route: Route, error: HostkitError, deadline: float) -> Failure:
    """Say why a question failed; by `deadline` (monotonic) Proxmox is asked for a container's state."""
    failed = error.hop if isinstance(error, UnreachableError) else route.host
    hops = _hops(route, failed, error)
    reached = [hop.name for hop in hops if hop.state == "ok"]
    how = "did not answer" if isinstance(error, RemoteTimeoutError) else "was not reached"
    evidence = [f"{failed} {how}: {error.what}" if isinstance(error, UnreachableError) else str(error)]
    evidence += [f"hops reached: {', '.join(reached)}"] if reached else []
    evidence += _asked_of_proxmox(connections, route, failed, deadline)
    evidence += [f"try: {error.hint}"] if error.hint else []
    return Failure(tuple(one_line(text) for text in evidence), tuple(hops))


def unreached(name: str, run: Run, now: PastObservation, failure: Failure) -> TrainStatus:
    return TrainStatus(
        run=name,
        host=HostStatus(name=run.host),
        verdict=Verdict.UNKNOWN,
        exit=Verdict.UNKNOWN.exit,
        at=now.at,
        since=now.since,
        before=now.before.verdict if now.before else None,
        last_known=last_known(now),
        evidence=list(failure.evidence),
        hops=list(failure.hops),
        links=run.links,
    )


def _hops(route: Route, failed: str, error: HostkitError) -> list[HopStatus]:
    """Return the hops from this machine to the host."""
    answered = not isinstance(error, UnreachableError)
    names = [hop.name for hop in route.hops]
    reached = error.hops_reached if isinstance(error, UnreachableError) else names[:-1]
    if failed not in names:  # a jump host of an alias: the failure shows at the first hop behind it
        failed = next((name for name in names if name not in reached), names[-1])
    out: list[HopStatus] = []
    for hop in route.hops:
        if hop.name == failed:
            status = HopStatus(
                name=hop.name, kind=hop.kind, state="failed", error=error.what, answered=answered
            )
        else:
            state: Literal["ok", "not tried"] = "ok" if hop.name in reached else "not tried"
            status = HopStatus(name=hop.name, kind=hop.kind, state=state)
        out.append(status)
    return out


def _asked_of_proxmox(connections: Connections, route: Route, failed: str, deadline: float) -> list[str]:
    """Where a container did not answer, its Proxmox host knows whether it runs, or is there at all."""
    hop = route.hops[-1]
    if hop.kind != "pct" or failed != hop.name or len(route.hops) < 2:
        return []
    host, vmid = route.hops[-2].name, hop.host.pct
    try:
        done = connections.transport(host, deadline=deadline).run(["pct", "status", str(vmid)])
    except DeadlineError:  # nobody was asked
        return []
    except (UnreachableError, DataError) as error:
        return [
            f"{host} was asked for the state of container {vmid}, and did not answer either: {error.what}"
        ]
    message = " ".join((done.text() if done.ok else done.stderr.decode("utf-8", "replace")).split())[:200]
    if not done.ok and "does not exist" in message:
        return [f"CT {vmid} is not on {host} (moved?): {message}"]
    return [f"pct status {vmid} on {host}: {message or f'exit {done.exit}'}"]
