"""Who carries the bytes: the destination pulls, the source pushes, or this machine relays; by which route, and why.

`auto` tries with one harmless command, `echo`, over the very ssh that the copy would use; a pull comes first, since it
asks least of the training host. A relay is taken only when somebody asks for it.
"""

from __future__ import annotations

import re
import secrets
import threading
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Literal

from hostkit.errors import ConfigError, RemoteTimeoutError
from hostkit.inventory.models import Inventory
from hostkit.staging.rsync_exit import last_lines
from hostkit.transport.base import Transport
from hostkit.transport.connections import THIS_MACHINE, Connections
from hostkit.transport.route import Route

By = Literal["auto", "pull", "push", "relay"]
SLACK = 10.0  # seconds to answer beyond what the hops may take to be connected to
_IF_AES = 'grep -qw aes /proc/cpuinfo && exec "$@"'


@dataclass(frozen=True)
class TransferRoute:
    """Who carries, why, and by what route: the hops from who carries to the other end.

    A relay's are those of the bytes: from the source to this machine, and on to the destination.
    """

    by: str
    why: str
    route: tuple[str, ...] = ()
    out: Route | None = None  # to the source, from who carries; None where the source itself does
    into: Route | None = None  # to the destination; None where the destination itself carries
    refused: str | None = None
    prints: bool = False  # a login shell on the route prints on stdout, where rsync takes it for data


def choose_route(
    connections: Connections, inventory: Inventory, source: str, destination: str, by: By = "auto"
) -> TransferRoute:
    """Return the route that was requested, or the first that works; raises what makes an asked one impossible."""
    if by == "relay":
        return _relay(connections, source, destination)
    if by == "pull":
        return _pull(connections, inventory, source, destination, "as requested")
    if by == "push":
        return _push(connections, inventory, source, destination, "as requested")
    try:
        pull = _pull(connections, inventory, source, destination, f"{destination} reaches {source}")
        no_pull, prints = _unreached(connections, destination, pull.out)
        pull = replace(pull, prints=prints)
    except ConfigError as error:
        pull, no_pull = TransferRoute("pull", "", (source,)), error.what
    if no_pull is None:
        return pull
    pull_fails = f"{destination} does not reach {source} ({no_pull})"
    try:
        push = _push(connections, inventory, source, destination, pull_fails)
        no_push, _ = _unreached(connections, source, push.into)
    except ConfigError as error:
        push, no_push = TransferRoute("push", "", ()), error.what
    if no_push is None:
        return push
    refused = f"{pull_fails}, and {source} does not reach {destination} ({no_push})"
    return TransferRoute("pull", "no other route works", pull.route, pull.out, refused=refused)


def find_route(
    connections: Connections, inventory: Inventory, source: str, destination: str, by: By = "auto"
) -> Future[TransferRoute]:
    """Begin to choose in another thread: it takes as long as to look at a run, or to read a checkpoint.

    A fault or an interrupt meanwhile does not wait for it.
    """
    finding: Future[TransferRoute] = Future()

    def find() -> None:
        try:
            finding.set_result(choose_route(connections, inventory, source, destination, by))
        except BaseException as error:  # noqa: BLE001 - raised where the route is asked for
            finding.set_exception(error)

    # Python waits at its end for the threads of an executor
    threading.Thread(target=find, name="hostkit-route", daemon=True).start()
    return finding


def seen_from(connections: Connections, inventory: Inventory, vantage: str, name: str) -> Route:
    """Return the route by which one inventory host itself reaches another."""
    if vantage == connections.here or (inventory.hosts[vantage].local and connections.here is None):
        return connections.route(name)  # this machine: the inventory's paths are as seen from here
    return Route.to(inventory, name, here=vantage)


def _pull(
    connections: Connections, inventory: Inventory, source: str, destination: str, why: str
) -> TransferRoute:
    route = _quick(connections.transport(destination), seen_from(connections, inventory, destination, source))
    near = not any(hop.kind == "ssh" for hop in route.hops)
    why = "the source is on the same machine" if near and why != "as requested" else why
    return TransferRoute("pull", why, tuple(hop.name for hop in route.hops), out=route)


def _push(
    connections: Connections, inventory: Inventory, source: str, destination: str, why: str
) -> TransferRoute:
    route = _quick(connections.transport(source), seen_from(connections, inventory, source, destination))
    names = tuple(hop.name for hop in route.hops)
    names = names if names[:1] == (source,) else (source, *names)
    return TransferRoute("push", why, names, into=route)


def _relay(connections: Connections, source: str, destination: str) -> TransferRoute:
    here = connections.machine()
    out, into = _quick(here, connections.route(source)), _quick(here, connections.route(destination))
    names = (*(hop.name for hop in reversed(out.hops)), THIS_MACHINE, *(hop.name for hop in into.hops))
    return TransferRoute("relay", "as requested", names, out=out, into=into)


def _quick(vantage: Transport, route: Route) -> Route:
    """Return the route with AES-GCM before the other ciphers that its ssh would offer anyway, where AES is in hardware.

    For the many bytes of a copy: it costs both ends less CPU than OpenSSH's first choice, and one of the two is the
    training host. Nothing is offered that was not offered before.
    """
    ciphers = []
    for name, question in route.ssh_config_queries().items():
        try:
            done = vantage.run(["sh", "-c", _IF_AES, "sh", *question], timeout=SLACK)
        except RemoteTimeoutError as error:
            if error.hop != vantage.host:
                raise
            continue  # a slow `Match exec`, say
        said = re.search(r"^ciphers (\S+)$", done.text(), re.MULTILINE)
        offered = said[1].split(",") if said and done.ok else []
        ordered = sorted(offered, key=lambda one: "gcm" not in one)  # stable: else as they were
        if ordered != offered:
            ciphers.append((name, ",".join(ordered)))
    return replace(route, ciphers=tuple(ciphers))


def _unreached(connections: Connections, vantage: str, route: Route | None) -> tuple[str | None, bool]:
    """Have the vantage host run `echo` at the end of the route; return why that failed, and whether more came."""
    hops = [hop for hop in route.hops if hop.kind == "ssh"] if route else []
    if route is None or not hops:
        return None, False
    word = f"hostkit-{secrets.token_hex(8)}\n".encode()
    budget = SLACK + sum(hop.host.timeouts.connect + hop.host.timeouts.auth for hop in hops)
    try:
        echo = route.piped_argv(["echo", word.decode().strip()], watched=True)
        done = connections.transport(vantage).run(echo, timeout=budget)
    except RemoteTimeoutError as error:
        if error.hop != vantage:
            raise
        return f"no answer within {budget:g} s", False
    if word in done.stdout:
        return None, done.stdout != word
    stderr = done.stderr.decode("utf-8", "replace").splitlines(keepends=True)
    message = last_lines("".join(line for line in stderr if not line.startswith("hostkit-hop ")))
    return message or f"exit {done.exit}, no output", False
