"""The channels of one connection: as many at once as the server allows (MaxSessions), learnt when it refuses one."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import paramiko

WAIT_SECONDS = 1.0  # seconds that a command waits for another's channel before FullError


class ChannelRefusedError(Exception):
    """The server opened no channel, on a healthy connection."""


class FullError(Exception):
    """All the channels that the server allows stay in use."""


class Channels:
    """Counts the open channels. Any thread may use it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open = 0
        self._limit: int | None = None

    @contextlib.contextmanager
    def open(self, open_channel: Callable[[], paramiko.Channel]) -> Iterator[paramiko.Channel]:
        """Open a channel by a function that raises ChannelRefusedError; wait for another to close where need be."""
        began = time.monotonic()
        while True:
            with self._changed:
                while self._limit is not None and self._open >= self._limit:
                    if not self._changed.wait(max(0.0, began + WAIT_SECONDS - time.monotonic())):
                        raise FullError
                self._open += 1
            try:
                channel = open_channel()
                break
            except ChannelRefusedError:
                self._leave()
                with self._changed:
                    if self._open == 0 and time.monotonic() - began > WAIT_SECONDS:
                        raise
                    # a channel that has just been closed may still count there: look again a little later
                    self._limit = max(1, self._open)
                    self._changed.wait(0.05)
            except BaseException:
                self._leave()
                raise
        try:
            yield channel
        finally:
            channel.close()
            self._leave()

    def _leave(self) -> None:
        with self._changed:
            self._open -= 1
            self._changed.notify()
