"""The chain of Fabric connections: each hop verified, through the one before it; commands by raw channels."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable

import fabric
import paramiko

from hostkit.errors import AuthError, HostKeyError, ProtocolError, RemoteTimeoutError, UnreachableError
from hostkit.transport import hostkeys
from hostkit.transport.line import Finished
from hostkit.transport.resolve import Endpoint, resolve
from hostkit.transport.route import Hop


class Verify(paramiko.MissingHostKeyPolicy):
    """Accepts a host key that is in the trusted files, and no other."""

    def __init__(self, endpoint: Endpoint, stood: tuple[str, ...]) -> None:
        self.endpoint = endpoint
        self.stood = stood
        end = endpoint
        inner = end.name if stood else None
        self.names = hostkeys.lookup_names(end.address, end.port, alias=end.host_key_alias, inner=inner)
        self.known = hostkeys.matching(hostkeys.read([*end.known_hosts, hostkeys.own_file()]), self.names)

    def missing_host_key(
        self,
        client: paramiko.SSHClient,  # noqa: ARG002
        hostname: str,  # noqa: ARG002
        key: paramiko.PKey,
    ) -> None:
        blob = key.asbytes()
        same = [known for known in self.known if known.blob == blob]
        if same and not any(known.revoked for known in same):
            return
        raise HostKeyError(
            f"host key unknown: {hostkeys.fingerprint(blob)}", hop=self.endpoint.name, stood=self.stood
        )


class HopLine:
    """A connection to one hop, shared by every transport that goes through it. Any thread may use it."""

    def __init__(self, hop: Hop, outer: HopLine | None) -> None:
        self.hop = hop
        self.outer = outer
        self._lock = threading.Lock()
        self._connection: fabric.Connection | None = None

    @property
    def stood(self) -> tuple[str, ...]:
        return (*self.outer.stood, self.outer.hop.name) if self.outer else ()

    def connection(self) -> fabric.Connection:
        """Return the open connection; made at first use, and again when it was lost."""
        with self._lock:
            if self._connection is None or not self._connection.is_connected:
                self._connection = self._connect()
            return self._connection

    def _connect(self) -> fabric.Connection:
        end = resolve(self.hop)
        budget = self.hop.host.timeouts
        policy = Verify(end, self.stood)
        connection = fabric.Connection(
            end.address,
            user=end.user,
            port=end.port,
            config=fabric.Config(overrides={"load_ssh_configs": False}, lazy=True),
            connect_kwargs={
                "key_filename": [str(path) for path in end.identities if path.exists()],
                "allow_agent": not end.only_identities,
                "look_for_keys": False,
                "timeout": budget.connect,
                "banner_timeout": budget.connect,
                "auth_timeout": budget.auth,
                "channel_timeout": budget.connect,
            },
        )
        connection.client.set_missing_host_key_policy(policy)
        try:
            if self.outer is not None:
                gateway = self.outer.connection()
                connection.connect_kwargs["sock"] = gateway.transport.open_channel(
                    "direct-tcpip", (end.address, end.port), ("", 0), timeout=budget.connect
                )
            connection.open()
        except UnreachableError:
            raise
        except paramiko.AuthenticationException as error:
            raise AuthError(f"login refused for {end.user}", hop=end.name, stood=self.stood) from error
        except TimeoutError as error:
            raise RemoteTimeoutError("no answer", hop=end.name, stood=self.stood) from error
        except (OSError, paramiko.SSHException) as error:
            raise UnreachableError(f"cannot connect: {error}", hop=end.name, stood=self.stood) from error
        return connection

    def carry(
        self, words: list[str], stdin: bytes, deadline: float | None, finished: Finished
    ) -> tuple[bytes, bytes]:
        """Run words through the hop's login shell; see `Line`."""
        connection = self.connection()
        try:
            channel = connection.transport.open_session(timeout=self.hop.host.timeouts.connect)
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise UnreachableError(f"no channel: {error}", hop=self.hop.name, stood=self.stood) from error
        with channel:
            return self._exchange(channel, shlex.join(words), stdin, deadline, finished)

    def _exchange(
        self,
        channel: paramiko.Channel,
        line: str,
        stdin: bytes,
        deadline: float | None,
        finished: Finished,
    ) -> tuple[bytes, bytes]:
        out, err = bytearray(), bytearray()
        channel.settimeout(0.5)
        try:
            channel.exec_command(line)
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise ProtocolError(
                f"the server did not start the command: {error}", where=self.hop.name
            ) from error
        threads = [
            threading.Thread(target=_feed, args=(channel, stdin), daemon=True),
            threading.Thread(target=_drain, args=(channel.recv_stderr, err, channel), daemon=True),
        ]
        for thread in threads:
            thread.start()
        while True:
            try:
                data = channel.recv(1 << 16)
            except TimeoutError:
                data = None
            if data == b"":
                threads[1].join(5)
                break
            out += data or b""
            if finished(out, err):
                break
            if deadline is not None and time.monotonic() > deadline:
                raise RemoteTimeoutError("no answer within its budget", hop=self.hop.name, stood=self.stood)
        return bytes(out), bytes(err)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


def _feed(channel: paramiko.Channel, data: bytes) -> None:
    rest = memoryview(data)
    try:
        while rest:
            try:
                rest = rest[channel.send(bytes(rest[: 1 << 16])) :]
            except TimeoutError:
                if channel.closed:
                    return
        channel.shutdown_write()
    except (OSError, EOFError):  # the command does not want the rest: no fault
        return


def _drain(recv: Callable[[int], bytes], into: bytearray, channel: paramiko.Channel) -> None:
    while True:
        try:
            data = recv(1 << 16)
        except TimeoutError:
            if channel.closed:
                return
            continue
        except OSError:
            return
        if not data:
            return
        into += data
