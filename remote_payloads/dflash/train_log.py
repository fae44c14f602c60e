"""What a training run says: a JSON line per logging step (stdout and log file), a human line beside it."""

from __future__ import annotations

import json
import math
import os
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO


class TrainLog:
    """Lines for people on stderr, for programs on stdout and in the file, which is appended to.

    Where both streams go into one log file, it gets the JSON lines alone: no step is told twice.
    """

    def __init__(self, file: Path | None, *, silent: bool = False) -> None:
        self.silent = silent
        self._human = _apart()
        self._file: TextIO | None = None
        if file and not silent:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._file = file.open("a", encoding="utf-8")

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
        print(line, flush=True)
        if self._file:
            self._file.write(line + "\n")
            self._file.flush()

    def _say(self, text: str) -> None:
        if not self.silent and self._human:
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
