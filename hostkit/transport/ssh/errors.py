"""Why a hop could not be connected to: the hop, which hops were reached, and what to try."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Iterator

import paramiko

from hostkit.errors import HostkitError, RemoteTimeoutError, UnreachableError
from hostkit.transport.ssh.resolve import Endpoint


@contextlib.contextmanager
def connect_errors(end: Endpoint, hops_reached: tuple[str, ...]) -> Iterator[None]:
    """Raise UnreachableError for whatever goes wrong while connecting."""
    began = time.monotonic()
    try:
        yield
    except HostkitError:
        raise
    except (OSError, EOFError, paramiko.SSHException) as error:
        raise _error(end, hops_reached, error, time.monotonic() - began) from error


def _error(end: Endpoint, hops_reached: tuple[str, ...], error: Exception, took: float) -> UnreachableError:
    place, budget, host = f"{end.address}:{end.port}", end.hop.host.timeouts, end.hop.host
    message = str(error)
    late = True
    match error:
        case socket.gaierror():
            late = False
            what, hint = f"cannot resolve {end.address}: {error.strerror}", "is the name right?"
            if host.alias == end.address:
                config = host.ssh_config or "your ssh config"
                hint = f"no Host block in {config} sets its HostName"
        case TimeoutError():
            what = f"no answer from {place} within {_waited(took, budget.connect)} s"
            hint = "is it up, and does a firewall let this machine through?"
        case paramiko.SSHException() if (
            "No existing session" in message
        ):  # paramiko's words for a late key exchange
            what, hint = (
                f"{place} did not finish the key exchange within {_waited(took, budget.auth)} s",
                "is it overloaded?",
            )
        case paramiko.SSHException() if (
            "banner" in message
            and not isinstance(error.__context__, TimeoutError)
            and took < budget.connect * 0.9
        ):
            late = False
            what = f"{place} closed the connection before sending an SSH banner"
            hint = "is it an ssh port, and does its sshd accept more connections (MaxStartups)?"
        case paramiko.SSHException() if "banner" in message:
            waited = _waited(took, budget.connect)
            what = f"{place} accepted the connection, but sent no SSH banner within {waited} s"
            hint = "is it an ssh port, and is its sshd frozen or overloaded (MaxStartups)?"
        case ConnectionRefusedError():
            late = False
            what, hint = f"{place} refused the connection", "is sshd running there on that port?"
        case paramiko.ssh_exception.IncompatiblePeer():
            late = False
            kind = re.search(r"no acceptable ([^)]*)", message)
            what = f"{place} and this machine have no {kind[1] if kind else 'algorithm'} in common"
            hint = "is its sshd very old?"
        case OSError():
            late = False
            what, hint = f"cannot connect to {place}: {error.strerror or message}", "is the route up?"
        case paramiko.SSHException() if "protocol version" in message:
            late = False
            what, hint = f"{place} answered with something that is not SSH", "is it an ssh port?"
        case _:
            late = False
            what, hint = f"{place} closed the connection during the key exchange", "see its sshd's log"
    make = RemoteTimeoutError if late else UnreachableError
    return make(what, hop=end.name, hops_reached=hops_reached, hint=hint)


def _waited(took: float, budget: float) -> str:
    """Return how long was waited: less than the budget where the whole command's time was over before."""
    return f"{round(min(took, budget), 1):g}"


def no_tunnel(
    end: Endpoint, hops_reached: tuple[str, ...], error: Exception, budget: float
) -> UnreachableError:
    """Return the error for a tunnel from the last hop that was reached to the next one, which failed."""
    place, outer = f"{end.address}:{end.port}", hops_reached[-1]
    if not isinstance(error, paramiko.ChannelException):
        return RemoteTimeoutError(
            f"{outer} got no answer from {place} within {budget:.3g} s",
            hop=end.name,
            hops_reached=hops_reached,
            hint=f"is {end.name} up, and does a firewall let {outer} through?",
        )
    if error.code == 1:  # administratively prohibited
        return UnreachableError(
            f"{outer} forbids a tunnel to {place}",
            hop=end.name,
            hops_reached=hops_reached,
            hint="allow it (AllowTcpForwarding in its sshd_config), or set `login: there` in the inventory",
        )
    return UnreachableError(
        f"{outer} could not connect to {place}",
        hop=end.name,
        hops_reached=hops_reached,
        hint=f"is {end.name} up, and is the address right as seen from {outer}?",
    )
