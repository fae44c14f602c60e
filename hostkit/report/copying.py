"""A copy under way: on a terminal one line that is redrawn, elsewhere a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from hostkit.formatting import age, size
from hostkit.staging.timing import Pace

if TYPE_CHECKING:
    from rich.live import Live

TOLD_EVERY = 5.0  # seconds between two lines where no terminal is
DRAWN_EVERY = 1.0
LEAST = 10  # columns below which a bar shows nothing
WORDS = {"copy": "copying", "wait": "another command copies it; waiting", "prove": "verifying"}


class Copying:
    """Called with the phase (copy, wait, prove), the bytes that are there, and the bytes in all.

    `say`: prints one line. `every`: seconds between two calls that are worth it.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        *,
        terminal: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.say = say
        self.clock = clock
        self.terminal = sys.stderr.isatty() if terminal is None else terminal
        self.every = DRAWN_EVERY if self.terminal else TOLD_EVERY
        self.phase = ""
        self.pace = Pace()
        self.told = 0.0
        self.live: Live | None = None

    def __enter__(self) -> Copying:
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def __call__(self, phase: str, done: int, total: int) -> None:
        now, fresh = self.clock(), phase != self.phase
        if fresh:
            self.phase, self.pace = phase, Pace()
        self.pace.at(now, done)
        if self.terminal:
            self._draw(done, total)
        elif fresh or now - self.told > TOLD_EVERY - DRAWN_EVERY:  # called at about that pace
            self.told = now
            self.say(f"{WORDS.get(phase, phase)} {self._words(done, total)}")

    def _words(self, done: int, total: int) -> str:
        if self.phase == "prove":
            return f"{size(total)} …"
        part = f"{size(done)} of {size(total)}"
        rate, left, still = self.pace.rate, self.pace.left(total), self.pace.still
        if still >= TOLD_EVERY:
            return f"{part}, nothing new for {age(still)}"
        return part + (f", {size(rate)}/s, {age(left)} to go" if rate and left is not None else "")

    def _draw(self, done: int, total: int) -> None:
        from rich.live import Live
        from rich.text import Text

        if self.live is None:
            from hostkit.report.console import console

            self.live = Live(console=console(stderr=True), transient=True, auto_refresh=False)
            self.live.start()
        line = Text(f"{WORDS.get(self.phase, self.phase)} {self._words(done, total)}")
        room = self.live.console.width - len(line.plain) - 2
        if (
            room >= LEAST and self.phase != "prove" and total
        ):  # words first: a bar is only as long as there is room
            filled = min(room, room * done // total)
            line.append("  ").append("━" * filled, "green").append("━" * (room - filled), "dim")
        self.live.update(line, refresh=True)
