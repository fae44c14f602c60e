"""Runs one command after another, or several at once, for a hostkit that asks through one pipe: each is a login less.

Travels to hosts: standard library only, Python 3.8 or newer. Writes no file, and ends when nobody asks any more.

What is asked: the length of a head in four bytes; the head, in JSON (`id`, `argv`, `given`: the bytes of its standard
input that follow, `timeout` in seconds or null; or `end`, the id of a command to be ended). What is answered: frames
of a length in four bytes, an id in four, a kind in one (`o` and `e`: its output; `x`: its end, in JSON) and the rest.
A frame of length 0 only says that somebody is there: an ssh on the way finds out by writing alone that its own
caller is gone.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import os
import select
import selectors
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from functools import partial
from typing import IO, Any

EVERY = 2.0  # seconds between two signs of life
KILL_AFTER = 2.0  # seconds between SIGTERM and SIGKILL, as `transport/frame.py` has it
MISSING, NOT_RUN = 127, 126  # as a shell says it
PART = 1 << 16


class Command:
    """A child that was started for a question."""

    def __init__(self, number: int, asked: dict[str, Any], given: bytes) -> None:
        self.number = number
        self.given = memoryview(given)
        timeout = asked.get("timeout")
        self.limit = time.monotonic() + timeout if timeout is not None else None
        self.told = 0  # of the two signals, how many it has had
        self.late = False
        # a group of its own: a time limit ends what it has started as well
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            asked["argv"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        pipes = zip((b"i", b"o", b"e"), (self.process.stdin, self.process.stdout, self.process.stderr))  # noqa: B905
        self.pipes: dict[bytes, IO[bytes]] = {kind: pipe for kind, pipe in pipes if pipe is not None}
        for pipe in self.pipes.values():
            os.set_blocking(pipe.fileno(), False)

    def over(self) -> bool:
        """Say whether it has ended; begin to end it when its time is up."""
        if self.process.poll() is not None:
            self.limit = None
            return True
        if self.limit is not None and time.monotonic() >= self.limit:
            self.late = self.late or not self.told
            self.tell()
        return False

    def tell(self) -> None:
        """Send the next of the two signals to the group of a child that we have not yet waited for."""
        number = signal.SIGKILL if self.told else signal.SIGTERM
        self.told += 1
        self.limit = time.monotonic() + KILL_AFTER if number == signal.SIGTERM else None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


def waiting(pipe: IO[bytes]) -> int:
    """Return how many bytes there are to be read."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe.fileno(), termios.FIONREAD, count)
    return count[0]


class CommandServer:
    """Reads requests in a thread of its own; does the rest in one loop."""

    def __init__(self) -> None:
        self.out = os.dup(1)
        os.dup2(2, 1)  # what Python itself may print is no answer
        self.heard: list[tuple[dict[str, Any], bytes] | None] = []
        self.here = True  # somebody asks, and reads our answers
        self.spoke = time.monotonic()
        self.commands: dict[int, Command] = {}
        self.ready = select.poll()
        self.ready.register(self.out, select.POLLOUT)
        self.selector = selectors.DefaultSelector()
        self.wakes, self.wake = os.pipe()
        for end in (self.wakes, self.wake):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wake, warn_on_full_buffer=False)
        self.selector.register(self.wakes, selectors.EVENT_READ, self.awake)

    def serve(self) -> None:
        """Answer until nobody asks any more; then see to the end of what has a time limit."""
        self.say(b"", b"")
        threading.Thread(target=self.listen, args=(sys.stdin.buffer,), daemon=True).start()
        while self.here or any(one.limit is not None for one in self.commands.values()):
            for key, _ in self.selector.select(self.patience()):
                key.data()
            while self.heard:
                question = self.heard.pop(0)
                if question is None:
                    self.left()
                elif self.here:
                    self.take(*question)
            for command in list(self.commands.values()):
                self.look(command)
            if self.here and time.monotonic() - self.spoke >= EVERY:
                self.write(b"\0\0\0\0")

    def listen(self, stream: Any) -> None:
        """Hear what is asked."""
        try:
            while True:
                head = json.loads(stream.read(struct.unpack("<I", stream.read(4))[0]))
                size = head.get("given", 0)
                given = stream.read(size)
                if len(given) < size:
                    break
                self.heard.append((head, given))
                self.stir()
        except (struct.error, ValueError):
            pass  # it ended
        self.heard.append(None)
        self.stir()

    def stir(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self.wake, b"\0")

    def awake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.wakes, PART)

    def patience(self) -> float:
        limits = [one.limit for one in self.commands.values() if one.limit is not None]
        soonest: float = min([EVERY, *(limit - time.monotonic() for limit in limits)])
        return max(0.0, soonest)

    # --- the commands

    def take(self, asked: dict[str, Any], given: bytes) -> None:
        """Start a command, or end one."""
        if "end" in asked:
            command = self.commands.get(asked["end"])
            if command is not None and not command.told:
                command.tell()
            return
        number = asked["id"]
        try:
            command = Command(number, asked, given)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self.say(b"e", ("%s: %s\n" % (asked["argv"][0], reason)).encode("utf-8", "replace"), number)
            status = MISSING if isinstance(error, (FileNotFoundError, NotADirectoryError)) else NOT_RUN
            self.say(b"x", json.dumps({"exit": status, "late": False}).encode(), number)
            return
        self.commands[number] = command
        for kind in (b"o", b"e"):
            self.selector.register(
                command.pipes[kind], selectors.EVENT_READ, partial(self.read, command, kind)
            )
        self.feed(command)
        if b"i" in command.pipes:
            self.selector.register(command.pipes[b"i"], selectors.EVENT_WRITE, partial(self.feed, command))

    def feed(self, command: Command) -> None:
        try:
            while command.given and b"i" in command.pipes:
                size = os.write(command.pipes[b"i"].fileno(), command.given[:PART])
                command.given = command.given[size:]
        except BlockingIOError:
            return
        except OSError:
            pass  # it does not want the rest: no fault
        self.close(command, b"i")

    def read(self, command: Command, kind: bytes) -> int:
        """Pass on what there is; return how many bytes."""
        pipe = command.pipes.get(kind)
        if pipe is None:  # closed since it was found ready: nobody asks any more
            return 0
        try:
            data = os.read(pipe.fileno(), PART)
        except BlockingIOError:
            return 0
        if data:
            self.say(kind, data, command.number)
        else:
            self.close(command, kind)
        return len(data)

    def close(self, command: Command, kind: bytes) -> None:
        pipe = command.pipes.pop(kind, None)
        if pipe is not None:
            with contextlib.suppress(
                KeyError
            ):  # the first of what it is given is written before it is registered
                self.selector.unregister(pipe)
            with contextlib.suppress(OSError):
                pipe.close()

    def look(self, command: Command) -> None:
        """Say that it has ended, where it has, whoever still holds its pipes and prints on and on."""
        if not command.over():
            return
        for kind in (b"o", b"e"):
            left = waiting(command.pipes[kind]) if kind in command.pipes else 0
            while left > 0:
                left -= self.read(command, kind) or left
        status = command.process.returncode
        for kind in list(command.pipes):
            self.close(command, kind)
        del self.commands[command.number]
        end = {"exit": 128 - status if status < 0 else status, "late": command.late}
        self.say(b"x", json.dumps(end).encode(), command.number)

    # --- who asks

    def say(self, kind: bytes, payload: bytes, number: int = 0) -> None:
        """Answer."""
        self.write(struct.pack("<II", 4 + len(kind) + len(payload), number) + kind + payload)

    def write(self, data: bytes) -> None:
        if not self.here:
            return
        view = memoryview(data)
        try:
            while view:
                # where nobody reads, time limits count all the same; what is ready takes PIPE_BUF and never waits
                while not self.ready.poll(1000 * self.patience()):
                    for command in self.commands.values():
                        command.over()
                view = view[os.write(self.out, view[: select.PIPE_BUF]) :]
        except OSError:
            self.left()
        self.spoke = time.monotonic()

    def left(self) -> None:
        """Nobody asks any more: whatever listens for that must hear of it."""
        if not self.here:
            return
        self.here = False
        with contextlib.suppress(OSError):
            os.close(self.out)
        for command in self.commands.values():
            for kind in list(command.pipes):
                self.close(command, kind)


def run() -> None:
    """Serve commands on stdin and stdout until the caller is gone."""
    CommandServer().serve()
    os._exit(0)  # whatever has no time limit goes on by itself, as if it had been asked alone
