"""What a training run says: a JSON line per logging step (stdout and log file), a human line beside it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from datetime import datetime, timezone
from io import FileIO
from pathlib import Path
from typing import Any

from dflash import events


class TrainLog:
    """Lines for people on stderr, for programs on stdout and in the file, which is appended to.

    Where both streams go into one log file, it gets the JSON lines alone: no step is told twice.
    """

    def __init__(self, file: Path | None, *, silent: bool = False) -> None:
        self.silent = silent
        self._human = _apart()
        self._file: FileIO | None = None
        self._torn = self._complained = False
        if file and not silent:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._file = file.open("ab", buffering=0)

    def step(self, fields: dict[str, Any]) -> None:
        """A logging step: at least step, loss, grad_norm, lr, tokens_per_s."""
        self._write(fields)
        text = " ".join(
            f"{name} {_short(fields[name])}"
            for name in ("step", "loss", "accuracy", "grad_norm", "lr", "tokens_per_s")
            if name in fields
        )
        self._say(text)

    def event(self, event: str, **fields: Any) -> None:
        """Anything else worth a line: started, saved, resumed, diverged, finished, stopped."""
        self._write({"event": event, **fields})
        self._say(f"{event}: " + " ".join(f"{k} {_short(v)}" for k, v in fields.items()))

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()

    def _write(self, fields: dict[str, Any]) -> None:
        if self.silent:
            return
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = json.dumps({k: _strict(v) for k, v in {**fields, "time": now}.items()}, allow_nan=False)
        events.say(line)
        if self._file:
            self._append(line.encode() + b"\n")

    def _append(self, line: bytes) -> None:
        """A log that cannot be written (full disk) ends no training: it is said once, and tried with every line."""
        assert self._file is not None
        whole = b"\n" + line if self._torn else line
        try:
            written = self._file.write(whole) or 0
        except OSError as error:
            if not self._complained:
                events.emit("log_lost", file=str(self._file.name), what=events.os_words(error))
            self._complained = True
            return
        self._torn = written < len(whole)  # the next line must not continue a cut one

    def _say(self, text: str) -> None:
        if not self.silent and self._human:
            with contextlib.suppress(OSError, ValueError):  # a terminal that is gone ends no training
                print(text, file=sys.stderr, flush=True)


def _apart() -> bool:
    """Whether stderr goes elsewhere than stdout, or to a terminal."""
    if sys.stderr.isatty():
        return True
    try:
        one, two = os.fstat(sys.stdout.fileno()), os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return True
    return (one.st_dev, one.st_ino) != (two.st_dev, two.st_ino)


def _strict(value: Any) -> Any:
    """JSON has no NaN: it is written as the word, which still reads as a number and as what it is."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
