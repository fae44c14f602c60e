"""The chain of Fabric connections: each hop verified and logged in to through the one before it, with budgets."""

from __future__ import annotations

import contextlib
import logging
import shlex
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import fabric
import paramiko

from hostkit.errors import HostkitError, LostError, ProtocolError, RemoteTimeoutError, UnreachableError
from hostkit.inventory.models import Host
from hostkit.transport.diagnose import explain_login_shell
from hostkit.transport.line import Budget, Finished, HostKey, Pipe, UnansweredError, flooded
from hostkit.transport.route import Hop
from hostkit.transport.ssh.channel_io import ChannelPipe, exchange
from hostkit.transport.ssh.channels import ChannelRefusedError, Channels, FullError
from hostkit.transport.ssh.connection import KINDS, log_in, offered_key
from hostkit.transport.ssh.dial import dial, end_proxy, start_proxy
from hostkit.transport.ssh.errors import connect_errors, no_tunnel
from hostkit.transport.ssh.host_key_policy import HostKeyPolicy, names_of
from hostkit.transport.ssh.keepalive import Keepalive
from hostkit.transport.ssh.login import Login
from hostkit.transport.ssh.resolve import Endpoint, resolve
from hostkit.transport.ssh.shared_failure import Failures

# its background thread logs what we raise anyway; without a handler Python prints that to stderr
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class HopLine:
    """A connection to one hop, shared by every transport that goes through it. Any thread may use it."""

    def __init__(self, hop: Hop, outer: HopLine | None) -> None:
        self.hop = hop
        self._outer = outer
        self._jumps: HopLine | None = None  # the ProxyJump of an alias, ours to close
        self._lock = threading.Lock()
        self._connection: fabric.Connection | None = None
        self._keepalive: Keepalive | None = None
        self._proxy: subprocess.Popen[bytes] | None = None
        self._channels = Channels()
        self._overflow: HopLine | None = None
        self._failures = Failures()
        self._closed = False

    @property
    def hops_before(self) -> tuple[str, ...]:
        """The hops before this one; see `SshLine`."""
        return tuple(line.hop.name for line in self._chain()[:-1])

    def run(self, argv: list[str], stdin: bytes, budget: Budget, finished: Finished) -> tuple[bytes, bytes]:
        """Run argv through the hop's login shell, quoted once for it; see `Line`."""
        transport = self._transport(budget.deadline)
        try:
            with self._channels.open(lambda: self._open_channel(transport, budget.deadline)) as channel:
                reply = self._exchange(transport, channel, argv, stdin, budget, finished)
        except FullError:
            return self._second().run(argv, stdin, budget, finished)
        except ChannelRefusedError as error:
            raise self._refused() from error
        if not finished(*reply):
            self._raise_if_lost(transport)
        return reply

    def open(self, argv: list[str], deadline: float | None) -> Pipe:
        """Start argv through the hop's login shell; see `Line`. It holds a channel until it is closed."""
        transport = self._transport(deadline)
        with contextlib.ExitStack() as stack:
            try:
                channel = stack.enter_context(
                    self._channels.open(lambda: self._open_channel(transport, deadline))
                )
            except FullError:
                return self._second().open(argv, deadline)
            except ChannelRefusedError as error:
                raise self._refused() from error
            line = shlex.join(argv).encode("utf-8", "surrogateescape")
            try:
                held = contextlib.ExitStack()
                pipe = ChannelPipe(channel, line, lambda: self._raise_if_lost(transport), held.close)
            except (paramiko.SSHException, EOFError, OSError) as error:
                raise self._not_started(transport) from error
            held.push(stack.pop_all())
            return pipe

    def connect(self, deadline: float | None) -> None:
        """Connect; see `Line`."""
        try:
            self._transport(deadline)
        except HostkitError as error:
            self._failures.defer(error)

    def explain(self, stdout: bytes, stderr: bytes) -> None:
        """Raise what its login shell says; see `Line`. Whatever else goes wrong, Fabric raises by itself."""
        explain_login_shell(self.hop, self.hops_before, stdout, stderr)

    def host_keys(self, deadline: float | None = None) -> Iterator[HostKey]:
        """Yield the host keys that this hop offers, kind after kind, each by a connection without a login."""
        end = self._resolve()
        budget = self.hop.host.timeouts
        for kinds in KINDS:
            with connect_errors(end, self.hops_before):
                sock = self._reach(end, deadline)
                try:
                    key = offered_key(
                        sock,
                        kinds,
                        connect=self._within(budget.connect, deadline),
                        auth=self._within(budget.auth, deadline),
                    )
                finally:
                    if self._connection is None:
                        self._drop()
            if key is not None:
                yield key

    def host_key_names(self) -> list[str]:
        """Return the names under which this hop's host key is looked up; the first is the one to write."""
        return names_of(self._resolve(), inner=bool(self.hops_before))

    def close(self) -> None:
        """Close this hop's connection. Commands under way on it are lost; another thread that connects gives up."""
        self._closed = True
        if not self._lock.acquire(blocking=False):
            # that thread will find it closed: whoever ends, by an interrupt say, waits for nobody's budget
            if self._proxy is not None:
                self._proxy.terminate()
            return
        try:
            if self._overflow is not None:
                self._overflow.close()
            self._drop()
            if self._jumps is not None:
                self._jumps.close()
        finally:
            self._lock.release()

    def tunnel(self, end: Endpoint, budget: float, deadline: float | None) -> paramiko.Channel:
        """Return a tunnel from this hop to the next one's address."""
        transport = self._transport(deadline)
        try:
            return transport.open_channel("direct-tcpip", (end.address, end.port), ("", 0), timeout=budget)
        except (paramiko.SSHException, EOFError, OSError) as error:
            self._raise_if_lost(transport)
            raise no_tunnel(end, (*self.hops_before, self.hop.name), error, budget) from error

    # connecting

    def _transport(self, deadline: float | None) -> paramiko.Transport:
        """Return the open connection's transport; connected at first use, and again when it was lost.

        Who waited while somebody else tried in vain gets that error: a dead hop costs its budget once.
        """
        since = time.monotonic()
        if not self._lock.acquire(timeout=-1 if deadline is None else max(0.0, deadline - since)):
            raise self._late(f"not connected within {time.monotonic() - since:.0f} s")
        try:
            if not self._closed and (self._connection is None or not self._connection.is_connected):
                self._failures.raise_recent(since)
                self._drop()
                try:
                    self._connection = self._connect(deadline)
                except HostkitError as error:
                    self._failures.record(error)
                    raise
                self._channels = Channels()
            connection = self._connection
        finally:
            self._lock.release()
        if self._closed or connection is None:
            self.close()
            raise LostError("hostkit closed the connection", hop=self.hop.name, hops_reached=self.hops_before)
        transport: paramiko.Transport = connection.transport
        return transport

    def _resolve(self) -> Endpoint:
        end = resolve(self.hop)
        if self._outer is None and end.jumps:
            self._outer = self._jumps = _jumps(end)
        return end

    def _connect(self, deadline: float | None) -> fabric.Connection:
        end = self._resolve()
        policy, login = HostKeyPolicy(end, self.hops_before), Login(end, self.hops_before)
        budget = self.hop.host.timeouts
        with connect_errors(end, self.hops_before):
            sock = self._reach(end, deadline)
            try:
                connection = log_in(
                    end,
                    policy,
                    login,
                    sock,
                    connect=self._within(budget.connect, deadline),
                    auth=self._within(budget.auth, deadline),
                )
            except BaseException as error:
                sock.close()
                self._drop()
                if self._outer is not None and not isinstance(error, HostkitError):
                    self._outer._raise_if_lost()
                raise
        self._keepalive = Keepalive(connection.transport, budget.idle)
        return connection

    def _reach(self, end: Endpoint, deadline: float | None) -> Any:
        """Return something like a socket to the hop: through the hop before it, a ProxyCommand, or directly."""
        budget = self._within(self.hop.host.timeouts.connect, deadline)
        if self._outer is not None:
            return self._outer.tunnel(end, budget, deadline)
        if end.proxy_command is not None:
            sock, self._proxy = start_proxy(end)
            return sock
        return dial(end, budget)

    def _within(self, budget: float, deadline: float | None) -> float:
        if deadline is None:
            return budget
        left = deadline - time.monotonic()
        if left <= 0:
            raise self._late("the time was used up before it was connected to")
        return min(budget, left)

    def _second(self) -> HopLine:
        """Return another connection to the same hop, for when all channels of this one stay in use."""
        with self._lock:
            if self._overflow is None:
                self._overflow = HopLine(self.hop, self._outer)
            return self._overflow

    def _drop(self) -> None:
        if self._keepalive is not None:
            self._keepalive.stop()
            self._keepalive = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._proxy is not None:
            end_proxy(self._proxy)
            self._proxy = None

    # running

    def _open_channel(self, transport: paramiko.Transport, deadline: float | None) -> paramiko.Channel:
        try:
            return transport.open_session(timeout=self._within(self.hop.host.timeouts.connect, deadline))
        except (paramiko.SSHException, EOFError, OSError) as error:
            self._raise_if_lost(transport)
            # paramiko keeps one error for all threads: of two refused, one hears only "Unable to open"
            if isinstance(error, paramiko.ChannelException) or "Unable to open" in str(error):
                raise ChannelRefusedError(str(error)) from error
            raise self._late("no channel opened in time") from error

    def _exchange(
        self,
        transport: paramiko.Transport,
        channel: paramiko.Channel,
        argv: list[str],
        stdin: bytes,
        budget: Budget,
        finished: Finished,
    ) -> tuple[bytes, bytes]:
        line = shlex.join(argv).encode("utf-8", "surrogateescape")
        try:
            return exchange(channel, line, stdin, budget.end(), finished, budget.max_bytes)
        except OverflowError:
            raise flooded(self.hop.name, budget.max_bytes) from None
        except UnansweredError:
            self._raise_if_lost(transport)
            raise
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise self._not_started(transport) from error

    # errors

    def _refused(self) -> UnreachableError:
        return UnreachableError(
            "channel refused",
            hop=self.hop.name,
            hops_reached=self.hops_before,
            hint="the connection itself works; see MaxSessions in the server's sshd_config",
        )

    def _not_started(self, transport: paramiko.Transport) -> ProtocolError:
        self._raise_if_lost(transport)
        return ProtocolError("the server did not start the command", where=self.hop.name)

    def _late(self, what: str) -> RemoteTimeoutError:
        """Return the error at the outermost hop of the chain that is not connected."""
        line = next((line for line in self._chain() if line._connection is None), self)
        return RemoteTimeoutError(what, hop=line.hop.name, hops_reached=line.hops_before)

    def _chain(self) -> list[HopLine]:
        return [*(self._outer._chain() if self._outer else []), self]

    def _raise_if_lost(self, transport: paramiko.Transport | None = None) -> None:
        """Raise LostError for the outermost hop of the chain that is gone, if this connection is lost."""
        if transport is None and self._connection is not None:
            transport = self._connection.transport
        if transport is None or (transport.is_active() and not (self._keepalive and self._keepalive.lost)):
            return
        for line in self._chain():
            keepalive, idle = line._keepalive, line.hop.host.timeouts.idle
            if keepalive is not None and (keepalive.lost or keepalive.silence() > idle * 0.9):
                raise LostError(
                    f"the server sent nothing for {idle:g} s",
                    hop=line.hop.name,
                    hops_reached=line.hops_before,
                )
            if line is self or line._connection is None or not line._connection.is_connected:
                raise LostError("the connection was lost", hop=line.hop.name, hops_reached=line.hops_before)


def _jumps(end: Endpoint) -> HopLine | None:
    """Return lines for the ProxyJump of an alias: hops that the inventory does not name."""
    line: HopLine | None = None
    for jump in end.jumps:
        user, _, rest = jump.removeprefix("ssh://").rpartition("@")
        name, _, port = rest.rpartition(":") if rest.rpartition(":")[2].isdigit() else (rest, "", "")
        host = Host(
            alias=name.strip("[]"),
            user=user or None,
            port=int(port) if port else None,
            ssh_config=end.hop.host.ssh_config,
            known_hosts=end.hop.host.known_hosts,
            timeouts=end.hop.host.timeouts,
        )
        line = HopLine(Hop(name.strip("[]"), host), line)
    return line
