"""The chain of Fabric connections: each hop verified and logged in to through the one before it, with budgets."""

from __future__ import annotations

import contextlib
import logging
import shlex
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import fabric
import paramiko

from hostkit.errors import (
    HostkitError,
    LostError,
    ProtocolError,
    RemoteTimeoutError,
    UnreachableError,
)
from hostkit.inventory.models import Host
from hostkit.transport.channel import exchange
from hostkit.transport.line import Budget, Finished
from hostkit.transport.login import Login
from hostkit.transport.pulse import Pulse
from hostkit.transport.resolve import Endpoint, resolve
from hostkit.transport.route import Hop
from hostkit.transport.verify import RSA, Verify, names_of

# its background thread logs what we raise anyway; without a handler Python prints that to stderr
logging.getLogger("paramiko").addHandler(logging.NullHandler())


KINDS = (["ssh-ed25519"], ["ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"], list(RSA))
PATIENCE = 1.0  # seconds that a command waits for another's channel before it gets a connection of its own


class _Full(Exception):  # noqa: N818  (a state, not a fault)
    """All channels that the server allows are in use."""


class HopLine:
    """A connection to one hop, shared by every transport that goes through it. Any thread may use it."""

    def __init__(self, hop: Hop, outer: HopLine | None) -> None:
        self.hop = hop
        self._outer = outer
        self._lock = threading.Lock()
        self._connection: fabric.Connection | None = None
        self._pulse: Pulse | None = None
        self._sessions = threading.Condition()
        self._open = 0
        self._more: HopLine | None = None
        self._most: int | None = None  # MaxSessions of the server, learnt when it refuses one

    @property
    def stood(self) -> tuple[str, ...]:
        """The hops before this one."""
        return (*self._outer.stood, self._outer.hop.name) if self._outer else ()

    def carry(
        self, words: list[str], stdin: bytes, budget: Budget, finished: Finished
    ) -> tuple[bytes, bytes]:
        """Run words through the hop's login shell, quoted once for it; see `Line`."""
        line = shlex.join(words).encode("utf-8", "surrogateescape")
        transport = self._transport(budget.connect_by)
        with contextlib.ExitStack() as stack:
            try:
                channel = stack.enter_context(self._session(transport, budget.connect_by))
            except _Full:
                return self._overflow().carry(words, stdin, budget, finished)
            deadline = None if budget.seconds is None else time.monotonic() + budget.seconds
            try:
                reply = exchange(channel, line, stdin, deadline, finished)
            except TimeoutError:
                self._complain_if_lost(transport)
                raise self._late("the command did not answer within its budget") from None
            except (paramiko.SSHException, EOFError, OSError) as error:
                self._complain_if_lost(transport)
                raise ProtocolError(
                    f"the server did not start the command: {error}", where=self.hop.name
                ) from error
        if not finished(*reply):
            self._complain_if_lost(transport)
        return reply

    def host_keys(self, deadline: float | None = None) -> Iterator[paramiko.PKey]:
        """Yield the host keys that this hop offers, one kind after the other, each by a connection without a login."""
        for kinds in KINDS:
            end = resolve(self.hop)
            with self._told(end):
                transport = paramiko.Transport(self._reach(end, deadline))
                try:
                    transport.get_security_options().key_types = kinds
                    transport.banner_timeout = self._within(self.hop.host.timeouts.connect, deadline)
                    transport.start_client(timeout=self._within(self.hop.host.timeouts.auth, deadline))
                    key = transport.get_remote_server_key()
                except paramiko.ssh_exception.IncompatiblePeer:  # it has no key of this kind
                    continue
                finally:
                    transport.close()
            yield key

    def host_key_names(self) -> list[str]:
        """Return the names under which this hop's host key is looked up; the first is the one to write."""
        return names_of(resolve(self.hop), inner=bool(self.stood))

    def close(self) -> None:
        """Close this hop's connection. Commands under way on it are lost."""
        with self._lock:
            if self._more is not None:
                self._more.close()
            self._drop()

    def _overflow(self) -> HopLine:
        """Return a second connection to the same hop."""
        with self._lock:
            if self._more is None:
                self._more = HopLine(self.hop, self._outer)
            return self._more

    def _drop(self) -> None:
        if self._pulse is not None:
            self._pulse.stop()
            self._pulse = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # connecting

    def _transport(self, deadline: float | None) -> paramiko.Transport:
        """Return the open connection's transport; connected at first use, and again when it was lost."""
        with self._lock:
            connection = self._connection
            if connection is None or not connection.is_connected:
                self._drop()
                connection = self._connect(deadline)
                self._connection = connection
                self._open = 0
            transport: paramiko.Transport = connection.transport
            return transport

    def _connect(self, deadline: float | None) -> fabric.Connection:
        end = resolve(self.hop)
        verify = Verify(end, self.stood)
        budget = self.hop.host.timeouts
        connection = fabric.Connection(
            end.address,
            user=end.user,
            port=end.port,
            # lazy: no file of the user's for Fabric or Invoke changes how hosts are reached
            config=fabric.Config(overrides={"load_ssh_configs": False}, lazy=True),
        )
        connection.client.set_missing_host_key_policy(verify)

        def transport(sock: Any, **kwargs: Any) -> paramiko.Transport:
            made = paramiko.Transport(sock, **kwargs)
            made.daemon = True
            verify.prefer(made)
            return made

        with self._told(end):
            try:
                connection.connect_kwargs = {
                    "sock": self._reach(end, deadline),
                    "transport_factory": transport,
                    "auth_strategy": Login(end, self.stood),
                    "timeout": self._within(budget.auth, deadline),  # of the key exchange
                    "banner_timeout": self._within(budget.connect, deadline),
                    "auth_timeout": self._within(budget.auth, deadline),
                    "channel_timeout": budget.connect,
                }
                connection.open()
            except BaseException:
                connection.client.close()
                if sock := connection.connect_kwargs.get("sock"):
                    sock.close()
                raise
        self._pulse = Pulse(connection.transport, budget.idle)
        return connection

    def _reach(self, end: Endpoint, deadline: float | None) -> Any:
        """Return something like a socket to the hop: through the hop before it, a ProxyCommand, or directly."""
        budget = self._within(self.hop.host.timeouts.connect, deadline)
        if self._outer is None and end.jumps:
            self._outer = _jumps(end)
        if self._outer is not None:
            return self._outer.tunnel(end, budget, deadline)
        if end.proxy_command is not None:
            return paramiko.ProxyCommand(_expand(end.proxy_command, end))
        until = time.monotonic() + budget
        failures: list[OSError] = []
        for family, kind, protocol, _, address in socket.getaddrinfo(
            end.address, end.port, type=socket.SOCK_STREAM
        ):
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

    def tunnel(self, end: Endpoint, budget: float, deadline: float | None) -> paramiko.Channel:
        """Return a tunnel from this hop to the next one's address."""
        transport = self._transport(deadline)
        try:
            return transport.open_channel("direct-tcpip", (end.address, end.port), ("", 0), timeout=budget)
        except paramiko.ChannelException as error:
            self._complain_if_lost(transport)
            if error.code == 1:  # administratively prohibited
                raise UnreachableError(
                    f"{self.hop.name} permits no tunnel to {end.address}:{end.port}",
                    hop=end.name,
                    stood=(*self.stood, self.hop.name),
                    hint="AllowTcpForwarding in its sshd_config, or `login: there` in the inventory",
                ) from error
            raise UnreachableError(
                f"{self.hop.name} could not connect to {end.address}:{end.port}",
                hop=end.name,
                stood=(*self.stood, self.hop.name),
                hint=f"is {end.name} up, and is the address right as seen from {self.hop.name}?",
            ) from error
        except (paramiko.SSHException, EOFError, OSError) as error:
            self._complain_if_lost(transport)
            raise RemoteTimeoutError(
                f"{self.hop.name} got no answer from {end.address}:{end.port} within {budget:g} s",
                hop=end.name,
                stood=(*self.stood, self.hop.name),
                hint=f"is {end.name} up, and does a firewall let {self.hop.name} through?",
            ) from error

    def _within(self, budget: float, deadline: float | None) -> float:
        if deadline is None:
            return budget
        left = deadline - time.monotonic()
        if left <= 0:
            raise self._late("the command's time was used up")
        return min(budget, left)

    # channels

    @contextlib.contextmanager
    def _session(self, transport: paramiko.Transport, deadline: float | None) -> Iterator[paramiko.Channel]:
        """Open one session channel. Where the server allows no more at once (MaxSessions), wait for one to end."""
        began = time.monotonic()
        while True:
            with self._sessions:
                while self._most is not None and self._open >= self._most:
                    if not self._sessions.wait(max(0.0, began + PATIENCE - time.monotonic())):
                        raise _Full
                self._open += 1
            try:
                channel = transport.open_session(
                    timeout=self._within(self.hop.host.timeouts.connect, deadline)
                )
                break
            except (paramiko.SSHException, EOFError, OSError) as error:
                self._leave()
                self._complain_if_lost(transport)
                # paramiko keeps one error for all threads: of two refused, one hears only "Unable to open"
                if not isinstance(error, paramiko.ChannelException) and "Unable to open" not in str(error):
                    raise self._late("no channel was opened within its budget") from error
                with self._sessions:
                    if self._open == 0 and time.monotonic() - began > PATIENCE:
                        raise self._refused(error) from error
                    # a session that has just ended may still count there: look again a little later
                    self._most = max(1, self._open)
                    self._sessions.wait(0.05)
            except BaseException:
                self._leave()
                raise
        try:
            yield channel
        finally:
            channel.close()
            self._leave()

    def _leave(self) -> None:
        with self._sessions:
            self._open = max(0, self._open - 1)
            self._sessions.notify()

    # saying what is wrong

    def _refused(self, why: Exception) -> UnreachableError:
        return UnreachableError(
            f"channel refused ({why})",
            hop=self.hop.name,
            stood=self.stood,
            hint="the connection itself is healthy; see MaxSessions in the server's sshd_config",
        )

    def _late(self, what: str) -> RemoteTimeoutError:
        return RemoteTimeoutError(what, hop=self.hop.name, stood=self.stood)

    def _chain(self) -> list[HopLine]:
        return [*(self._outer._chain() if self._outer else []), self]

    def _complain_if_lost(self, transport: paramiko.Transport) -> None:
        """Raise LostError for the outermost hop of the chain that is gone, if one is."""
        if transport.is_active() and not (self._pulse and self._pulse.lost):
            return
        for line in self._chain():
            pulse, idle = line._pulse, line.hop.host.timeouts.idle
            if pulse is not None and (pulse.lost or pulse.silence() > idle * 0.9):
                raise LostError(f"fell silent for {idle:g} s", hop=line.hop.name, stood=line.stood)
            if line is self or line._connection is None or not line._connection.is_connected:
                raise LostError("the connection was cut", hop=line.hop.name, stood=line.stood)

    @contextlib.contextmanager
    def _told(self, end: Endpoint) -> Iterator[None]:
        """Turn what can go wrong while connecting into errors that name the hop and what to try."""
        place = f"{end.address}:{end.port}"
        budget = self.hop.host.timeouts
        try:
            yield
        except HostkitError:
            raise
        except socket.gaierror as error:
            raise self._unreachable(
                f"the name {end.address} is not known: {error.strerror}", "is it spelt right?"
            ) from error
        except TimeoutError as error:
            raise RemoteTimeoutError(
                f"no answer from {place} within {budget.connect:g} s",
                hop=self.hop.name,
                stood=self.stood,
                hint="is it up, and does a firewall let you through?",
            ) from error
        except ConnectionRefusedError as error:
            raise self._unreachable(
                f"{place} refused the connection", "is sshd running there, on that port?"
            ) from error
        except paramiko.ssh_exception.IncompatiblePeer as error:
            raise self._unreachable(f"no algorithm in common: {error}", "is its sshd very old?") from error
        except (paramiko.SSHException, EOFError) as error:
            for line in self._chain()[:-1]:
                if line._connection is not None:
                    line._complain_if_lost(line._connection.transport)
            if "No existing session" in str(
                error
            ):  # what paramiko says when the key exchange is not done in time
                raise RemoteTimeoutError(
                    f"{place} did not finish the key exchange within {budget.auth:g} s",
                    hop=self.hop.name,
                    stood=self.stood,
                    hint="is the machine overloaded?",
                ) from error
            if "banner" in str(error):
                raise RemoteTimeoutError(
                    f"{place} accepted the connection, and sent no SSH banner within {budget.connect:g} s ({error})",
                    hop=self.hop.name,
                    stood=self.stood,
                    hint="is that an ssh port, and is the machine overloaded (MaxStartups)?",
                ) from error
            raise self._unreachable(
                f"{place} broke off: {error or 'connection closed'}", "see the server's log"
            ) from error
        except OSError as error:
            raise self._unreachable(
                f"cannot connect to {place}: {error.strerror or error}", "is the route up?"
            ) from error

    def _unreachable(self, what: str, hint: str) -> UnreachableError:
        return UnreachableError(what, hop=self.hop.name, stood=self.stood, hint=hint)


def _jumps(end: Endpoint) -> HopLine | None:
    """Return lines for the ProxyJump of an alias: hops that the inventory does not name."""
    line: HopLine | None = None
    for jump in end.jumps:
        user, _, rest = jump.rpartition("@")
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


def _expand(command: str, end: Endpoint) -> str:
    for token, value in (("%h", end.address), ("%p", str(end.port)), ("%r", end.user), ("%%", "%")):
        command = command.replace(token, value)
    return command
