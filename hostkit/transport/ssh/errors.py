"""Why a hop could not be connected to, in words that name it, which hops were reached, and what to try."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import paramiko

from hostkit.errors import HostkitError, RemoteTimeoutError, UnreachableError
from hostkit.transport.ssh.resolve import Endpoint


@contextlib.contextmanager
def connect_errors(end: Endpoint, hops_reached: tuple[str, ...]) -> Iterator[None]:
    """Turn what can go wrong while connecting into errors of hostkit's own."""
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
            what, hint = f"the name {end.address} is not known: {error.strerror}", "is it spelt right?"
            if host.alias == end.address:
                config = host.ssh_config or "your ssh config"
                hint = f"no Host block of {config} gives it an address (HostName)"
        case TimeoutError():
            what = f"no answer from {place} within {_waited(took, budget.connect)} s"
            hint = "is it up, and does a firewall let you through?"
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
            what = f"{place} closed the connection before any SSH banner ({message})"
            hint = "is that an ssh port, and does its sshd take more connections (MaxStartups)?"
        case paramiko.SSHException() if "banner" in message:
            waited = _waited(took, budget.connect)
            what = f"{place} took the connection, and sent no SSH banner within {waited} s ({message})"
            hint = "is that an ssh port, and is the machine overloaded (MaxStartups)?"
        case ConnectionRefusedError():
            late = False
            what, hint = f"{place} refused the connection", "is sshd running there, on that port?"
        case paramiko.ssh_exception.IncompatiblePeer():
            late = False
            what, hint = f"no algorithm in common: {message}", "is its sshd very old?"
        case OSError():
            late = False
            what, hint = f"cannot connect to {place}: {error.strerror or message}", "is the route up?"
        case _:
            late = False
            what, hint = f"{place} broke off: {message or 'connection closed'}", "see its sshd's log"
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
            f"{outer} got no answer from {place} within {budget:g} s",
            hop=end.name,
            hops_reached=hops_reached,
            hint=f"is {end.name} up, and does a firewall let {outer} through?",
        )
    if error.code == 1:  # administratively prohibited
        return UnreachableError(
            f"{outer} permits no tunnel to {place}",
            hop=end.name,
            hops_reached=hops_reached,
            hint="AllowTcpForwarding in its sshd_config, or `login: there` in the inventory",
        )
    return UnreachableError(
        f"{outer} could not connect to {place}",
        hop=end.name,
        hops_reached=hops_reached,
        hint=f"is {end.name} up, and is the address right as seen from {outer}?",
    )
