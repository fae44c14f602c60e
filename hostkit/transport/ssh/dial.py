"""Sockets to a first hop: by TCP with one budget for all its addresses, or by the user's ProxyCommand."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from typing import Any

from hostkit.transport.ssh.resolve import Endpoint, percent


def dial(end: Endpoint, budget: float) -> socket.socket:
    """Connect to the first address that answers. Raises the first address's OSError when none does."""
    until = time.monotonic() + budget
    failures: list[OSError] = []
    for family, kind, protocol, _, address in _resolve(end, budget):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(max(0.1, until - time.monotonic()))
            sock.connect(address)
        except OSError as error:
            sock.close()
            failures.append(error)
        else:
            return sock
    raise failures[0]


def _resolve(end: Endpoint, budget: float) -> list[tuple[Any, ...]]:
    """Resolve a name within the budget: the system's resolver has none, and may take half a minute."""
    addresses: list[tuple[Any, ...]] = []
    errors: list[OSError] = []

    def resolve() -> None:
        try:
            addresses.extend(socket.getaddrinfo(end.address, end.port, type=socket.SOCK_STREAM))
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=resolve, name="hostkit-lookup", daemon=True)
    thread.start()
    thread.join(budget)
    if errors:
        raise errors[0]
    if not addresses:
        raise socket.gaierror(socket.EAI_AGAIN, f"the lookup took longer than {budget:g} s")
    return addresses


def end_proxy(process: subprocess.Popen[bytes], patience: float = 2.0) -> None:
    """End a ProxyCommand that was started here; one that does not heed SIGTERM is killed."""
    process.terminate()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def start_proxy(end: Endpoint) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start the ProxyCommand as OpenSSH does, by a shell, with the other end of a socket as its stdin and stdout."""
    command = percent(end.proxy_command or "", h=end.address, p=str(end.port), r=end.user)
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            ["sh", "-c", f"exec {command}"],
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.DEVNULL,
        )
    return ours, process
