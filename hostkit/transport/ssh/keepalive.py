"""Keepalive: a server that stops answering is noticed, whatever anybody waits for.

paramiko's keepalive sends, and never looks for an answer. Here every packet that arrives is a sign of life;
after a third of the idle budget in silence the server is asked for one, after the whole of it the connection
is closed, which wakes everybody who waits on it.
"""

from __future__ import annotations

import contextlib
import threading
import time

import paramiko


class Keepalive:
    """Watches one transport until it is closed."""

    def __init__(self, transport: paramiko.Transport, idle: float) -> None:
        self._transport = transport
        self._idle = idle
        self._heard = time.monotonic()
        self._stop = threading.Event()
        self._asking: threading.Thread | None = None
        self.lost = False
        packetizer = transport.packetizer
        receive = packetizer.read_message

        def read_message() -> tuple[int, paramiko.Message]:
            packet = receive()
            self._heard = time.monotonic()
            return packet

        packetizer.read_message = read_message  # type: ignore[method-assign]
        self._watcher = threading.Thread(target=self._watch, name="hostkit-keepalive", daemon=True)
        self._watcher.start()

    def silence(self) -> float:
        """Seconds since anything came from the server."""
        return time.monotonic() - self._heard

    def stop(self) -> None:
        self._stop.set()

    def _watch(self) -> None:
        while not self._stop.wait(min(self._idle / 6, 1.0)):
            if not self._transport.is_active():
                return
            silence = self.silence()
            if silence > self._idle:
                self.lost = True
                # the socket first: closing the transport would wait for a send that never ends
                with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                    self._transport.sock.close()
                self._transport.close()
                return
            if silence > self._idle / 3 and (self._asking is None or not self._asking.is_alive()):
                self._asking = threading.Thread(target=self._ask, name="hostkit-ping", daemon=True)
                self._asking.start()

    def _ask(self) -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._transport.global_request("keepalive@openssh.com", wait=True)
