"""Connections of one hostkit command: every host's transport, over shared hop connections."""

from __future__ import annotations

import contextlib
import threading
import time
from types import TracebackType
from typing import Self

from hostkit.errors import HostkitError, LostError
from hostkit.inventory.models import Host, Inventory
from hostkit.transport.base import Transport
from hostkit.transport.framed import FramedTransport
from hostkit.transport.line import Line, SshLine, SshLines
from hostkit.transport.local import LocalLine
from hostkit.transport.multiplex import Multiplexer
from hostkit.transport.route import Hop, Route
from hostkit.transport.ssh.lean_import import lean_import

THIS_MACHINE = "this machine"


def _ssh_implementation() -> SshLines:
    """Return a new set of ssh lines. Which implementation that is, is said here and nowhere else."""
    with lean_import():
        from hostkit.transport.ssh.lines import FabricLines  # fabric costs 100 ms: only where ssh is used

    return FabricLines()


class Connections:
    """Gives the transport of each host. Hops are connected once, at first use, whoever asks first.

    `here`: the inventory host that this machine is. `timeout`: seconds for the whole command. `multiplexed`: more than
    one question will be asked of a host, so that a multiplexer is worth its start.
    """

    def __init__(
        self,
        inventory: Inventory,
        *,
        here: str | None = None,
        timeout: float | None = None,
        multiplexed: bool = False,
    ) -> None:
        self.inventory = inventory
        self.here = here
        self.multiplexed = multiplexed
        self.deadline = None if timeout is None else time.monotonic() + timeout
        self._ssh: SshLines | None = None
        self._multiplexers: dict[str, Multiplexer] = {}
        self._lock = threading.Lock()
        self._closed = False

    def route(self, name: str) -> Route:
        return Route.to(self.inventory, name, self.here, standing_there=True)

    def transport(self, name: str, *, deadline: float | None = None) -> Transport:
        """Return the transport to a host; nothing is connected yet.

        By `deadline` (monotonic) its questions are answered, logging in included; the whole command's counts as well.
        """
        return self._framed(name, deadline)

    def _framed(self, name: str, deadline: float | None = None) -> FramedTransport:
        route = self.route(name)
        chain = route.connected()
        line: Line = self.ssh_line(chain) if chain else LocalLine(name)
        multiplexer = self._multiplexer(route, line) if self.multiplexed and route.wrapped() else None
        ends = [end for end in (self.deadline, deadline) if end is not None]
        return FramedTransport(route, line, deadline=min(ends, default=None), multiplexer=multiplexer)

    def _multiplexer(self, route: Route, line: Line) -> Multiplexer:
        with self._lock:
            if self._closed:
                raise LostError("hostkit closed the connection", hop=route.host)
            return self._multiplexers.setdefault(route.host, Multiplexer(route, line))

    def preconnect(self, *names: str) -> None:
        """Begin to connect to hosts that will be asked. What goes wrong is raised by the first question."""
        for name in dict.fromkeys(names):
            route = self.route(name)  # a fault of the inventory is raised here
            if route.connected():
                self.ssh_line(route.connected())  # imports fabric first: nothing is sent before it is there
            threading.Thread(
                target=self._connect, args=(name,), name="hostkit-preconnect", daemon=True
            ).start()

    def _connect(self, name: str) -> None:
        with contextlib.suppress(HostkitError):  # closed meanwhile; whatever else, the first question raises
            self._framed(name).connect()

    def close_multiplexer(self, name: str) -> None:
        """End a host's multiplexer where nothing will be asked for a while. The next transport has a new one."""
        with self._lock:
            multiplexer = self._multiplexers.pop(name, None)
        if multiplexer is not None:
            multiplexer.close()

    def remaining(self) -> float | None:
        """Return the seconds that are left of the whole command's budget; None where it has none."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def this_host(self) -> str:
        """Return what this machine is called: the inventory's name for it, where it has one."""
        local = (name for name, host in self.inventory.hosts.items() if host.local)
        return self.here or next(local, THIS_MACHINE)

    def machine(self) -> Transport:
        """Return the transport to this very machine, whether or not it is a host of the inventory."""
        hop = Hop(THIS_MACHINE, Host.model_construct(local=True), here=True)
        return FramedTransport(Route(THIS_MACHINE, (hop,)), LocalLine(THIS_MACHINE), deadline=self.deadline)

    def ssh_line(self, chain: tuple[Hop, ...]) -> SshLine:
        """Return the line to the last hop of a chain; nothing is connected yet."""
        with self._lock:
            if self._closed:
                raise LostError("hostkit closed the connection", hop=chain[-1].name)
            if self._ssh is None:
                self._ssh = _ssh_implementation()
            return self._ssh.line(chain)

    def close(self) -> None:
        """Close every connection, innermost first, for good."""
        with self._lock:
            self._closed = True
        for multiplexer in self._multiplexers.values():
            multiplexer.close()
        if self._ssh is not None:
            self._ssh.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()
