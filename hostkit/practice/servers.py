"""The SSH server that stands for one host of the practice fleet, as a process of its own.

`python -m hostkit.practice.servers ROOT ct129|pve`. ct129 listens on a free port of 127.0.0.1. pve listens
on a Unix socket that nobody but ct129 opens, so it is reached through ct129 only, by a tunnel or by ct129's
own ssh. Behaves as sshd does where a client can tell: the login shell reads the command, bytes pass as
they are, output is whole before the exit status, a client that goes away leaves its command running.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import asyncssh

from hostkit.practice import processes
from hostkit.practice.root import MARK, PVE_NAME, Account, Root, login_name

_CHUNK = 2**17
_SHELL = "/bin/sh"
_log = logging.getLogger("hostkit.practice")


def shell_environment(root: Root, account: Account) -> dict[str, str]:
    """Return the clean environment of a login: nothing of whoever started the fleet is in it."""
    tools = {str(Path(found).parent) for name in ("ssh", "rsync") if (found := shutil.which(name))}
    standard = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
    name = login_name()
    return {
        "HOME": str(account.home),
        "USER": name,
        "LOGNAME": name,
        "SHELL": _SHELL,
        "PATH": ":".join([str(account.bin), *standard, *sorted(tools - set(standard))]),
        "TMPDIR": str(account.tmp),
        MARK: str(root.path),
    }


def _accept_any_bytes() -> None:
    """Teach asyncssh to run a command that is not UTF-8, which it otherwise refuses: file names need not be."""

    def process_exec_request(channel: Any, packet: Any) -> Any:
        command = packet.get_string()
        packet.check_end()
        return channel._start_session(command=os.fsdecode(command))

    asyncssh.SSHServerChannel._process_exec_request = process_exec_request  # type: ignore[method-assign,assignment]


class _Door(asyncssh.SSHServer):
    """A login server that lets nobody tunnel anywhere, except ct129 to pve."""

    def __init__(self, root: Root, host: str) -> None:
        self._root = root
        self._host = host
        self._connection: Any = None

    def connection_made(self, conn: Any) -> None:
        self._connection = conn

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> Any:  # noqa: ARG002
        if self._host == "ct129" and (dest_host, dest_port) == (PVE_NAME, 22):
            return self._connection.forward_unix_connection(str(self._root.socket))
        raise asyncssh.ChannelOpenError(
            asyncssh.OPEN_CONNECT_FAILED, f"no route from {self._host} to {dest_host}"
        )


def _same(protocol: asyncio.StreamReaderProtocol) -> asyncio.StreamReaderProtocol:
    return protocol


class _Command:
    """A command of a login, with the three pipes on which its client talks to it."""

    def __init__(self, arguments: list[str], environment: dict[str, str], home: Path) -> None:
        self._popen = subprocess.Popen(
            [os.fsencode(argument) for argument in arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=home,
            start_new_session=True,
            bufsize=0,
        )
        self.pid = self._popen.pid
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[int] = loop.create_future()
        # asyncio's own subprocesses are killed when their pipes are closed; sshd's are not.
        threading.Thread(target=self._reap, args=(loop,), daemon=True).start()

    def _reap(self, loop: asyncio.AbstractEventLoop) -> None:
        status = self._popen.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: the server is ending
            loop.call_soon_threadsafe(self._note_end, status)

    def _note_end(self, status: int) -> None:
        if not self.ended.done():
            self.ended.set_result(status)

    async def open(self) -> tuple[asyncio.StreamWriter, asyncio.StreamReader, asyncio.StreamReader]:
        """Return standard input, output and error as streams."""
        loop = asyncio.get_running_loop()
        readers = []
        self._transports: list[asyncio.BaseTransport] = []
        for pipe in (self._popen.stdout, self._popen.stderr):
            reader = asyncio.StreamReader()
            protocol = asyncio.StreamReaderProtocol(reader)
            transport, _ = await loop.connect_read_pipe(functools.partial(_same, protocol), pipe)
            self._transports.append(transport)
            readers.append(reader)
        write, flow = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, self._popen.stdin)
        self._transports.append(write)
        return asyncio.StreamWriter(write, flow, None, loop), readers[0], readers[1]

    def hang_up(self) -> None:
        """Close the pipes, as sshd does when its client is gone: a command that still writes gets SIGPIPE."""
        for transport in self._transports:
            if isinstance(transport, asyncio.WriteTransport) and not transport.is_closing():
                transport.abort()  # what it has not read, it will not read
            else:
                transport.close()

    def signal(self, name: str) -> None:
        """Pass on a signal that the client asked for."""
        number = getattr(signal, f"SIG{name}", None)
        if number is not None and not self.ended.done():
            os.killpg(self.pid, number)


async def _feed(session: Any, command: _Command, stdin: asyncio.StreamWriter) -> None:
    """Copy the client's input to the command; a command that reads no more is no error."""
    try:
        while True:
            try:
                data = await session.stdin.read(_CHUNK)
            except asyncssh.SignalReceived as received:
                command.signal(received.signal)
                continue
            except (asyncssh.BreakReceived, asyncssh.TerminalSizeChanged):
                continue
            if not data:
                break
            stdin.write(data)
            await stdin.drain()
    except (BrokenPipeError, ConnectionResetError):
        while await session.stdin.read(
            _CHUNK
        ):  # else the client's window fills and its connection stands still
            pass
    finally:
        stdin.close()


async def _drain(source: asyncio.StreamReader, sink: Any) -> None:
    """Copy output until its end, no faster than the client reads."""
    while data := await source.read(_CHUNK):
        sink.write(data)
        await sink.drain()


async def _serve(session: Any, root: Root, account: Account) -> None:
    """Serve one session; a fault of the server's own is logged, since asyncssh only hangs up on it."""
    try:
        await _run(session, root, account)
    except Exception:
        _log.exception("a session on %s failed", account.name)
        raise


async def _run(session: Any, root: Root, account: Account) -> None:
    """Run what the client asked for in the login shell, and end the session as sshd would."""
    environment = shell_environment(root, account) | {"SSH_CONNECTION": _connection(session)}
    environment |= {k: v for k, v in session.env.items() if k == "LANG" or k.startswith("LC_")}
    command = _Command(
        [_SHELL] if session.command is None else [_SHELL, "-c", session.command], environment, account.home
    )
    processes.note(root, f"a command on {account.name}", command.pid)
    stdin, stdout, stderr = await command.open()
    feeding = asyncio.ensure_future(_feed(session, command, stdin))
    copying = asyncio.gather(_drain(stdout, session.stdout), _drain(stderr, session.stderr))
    leaving = asyncio.ensure_future(session.channel.wait_closed())
    try:
        await asyncio.wait({copying, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not copying.done() or copying.exception() is not None:
            _log.info("client of %s went away; its command %d goes on", account.name, command.pid)
            return
        status = await command.ended
    finally:
        for task in (feeding, copying, leaving):
            task.cancel()
        await asyncio.gather(feeding, copying, leaving, return_exceptions=True)
        command.hang_up()
    if status < 0:
        session.exit_with_signal(signal.Signals(-status).name.removeprefix("SIG"))
    else:
        session.exit(status)


def _connection(session: Any) -> str:
    peer, here = session.get_extra_info("peername"), session.get_extra_info("sockname")
    if isinstance(peer, tuple) and isinstance(here, tuple):
        return f"{peer[0]} {peer[1]} {here[0]} {here[1]}"
    return "127.0.0.1 0 127.0.0.1 22"  # a Unix socket has no numbers


def _listener(root: Root, host: str) -> socket.socket:
    """Bind where the host is reached; a socket file that a killed server left is replaced."""
    if host == "ct129":
        listener = socket.socket(socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port = int(root.port_file.read_text()) if root.port_file.exists() else 0
        listener.bind(("127.0.0.1", port))  # the same port again after a restart: the inventory names it
        _write(root.port_file, f"{listener.getsockname()[1]}\n")
        return listener
    listener = socket.socket(socket.AF_UNIX)
    root.socket.unlink(missing_ok=True)
    listener.bind(str(root.socket))
    return listener


def _write(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.rename(path)


async def serve(root: Root, host: str) -> None:
    """Serve logins to one host until SIGTERM; the commands it started go on."""
    _accept_any_bytes()
    account = root.account(host)
    listener = _listener(root, host)
    # Listening only once everything is in place, so that a client that connects is served.
    server = await asyncssh.listen(
        sock=listener,
        server_factory=lambda: _Door(root, host),
        process_factory=lambda session: _serve(session, root, account),
        server_host_keys=[str(account.host_key)],
        authorized_client_keys=str(account.authorized_keys),
        password_auth=False,
        kbdint_auth=False,
        host_based_auth=False,
        gss_host=None,
        encoding=None,
        line_editor=False,
        allow_pty=False,
        allow_scp=False,
        agent_forwarding=False,
        x11_forwarding=False,
        login_timeout=60,
    )
    end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end.set)
    _write(root.ready_file(host), f"{os.getpid()}\n")
    async with server:
        await end.wait()


def main(argv: list[str]) -> int:
    """Run one server. The arguments are the fleet's root and the host's name."""
    root, host = Root(Path(argv[0])), argv[1]
    if os.fork():  # nobody's child: whoever brings the fleet up may go, and reaps nothing
        os._exit(0)
    os.setsid()
    processes.note(root, f"the SSH server of {host}", os.getpid())
    _write(root.pid_file(host), f"{os.getpid()}\n")
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    asyncio.run(serve(root, host))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
