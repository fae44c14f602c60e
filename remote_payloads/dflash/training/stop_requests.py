"""How a run is asked to save or to end: SIGTERM and SIGINT between steps, a trigger file at any time."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any


class Stopping:
    """Signals set a flag that is looked at between steps; pauses end early when it is set."""

    def __init__(self, trigger: Path | None = None) -> None:
        self.trigger = trigger
        self.reason: str | None = None
        self._asked = threading.Event()

    def listen(self) -> None:
        """Handle the signals from here on; a second one ends the process as it would without us."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: Any) -> None:
        self.reason = signal.Signals(number).name
        self._asked.set()
        signal.signal(number, signal.SIG_DFL)

    @property
    def asked(self) -> bool:
        """Whether the run is to end after this step."""
        return self._asked.is_set()

    def pause(self, seconds: float) -> None:
        """Wait, unless asked to stop."""
        if seconds > 0:
            self._asked.wait(seconds)

    def save_now(self) -> bool:
        """Whether the trigger file was put; it is taken away, so that one file is one save."""
        if self.trigger is None or not self.trigger.exists():
            return False
        try:
            self.trigger.unlink(missing_ok=True)
        except OSError:
            self.trigger = None  # it cannot be taken away: one save, not one after every step
        return True
