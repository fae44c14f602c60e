"""The steps of an evaluation and the state of each, with notes for the reader."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["pending", "running", "done", "skipped", "failed"]

NAMES = (
    "find",
    "verify",
    "check-harness",
    "preflight",
    "stage",
    "one-block",
    "run",
    "collect",
    "compare",
    "archive",
    "recheck",
)


@dataclass
class Step:
    """One step: its state, what there is to say of it, and how long it took (seconds)."""

    name: str
    state: State = "pending"
    message: str = ""
    seconds: float | None = None
    started: float | None = field(default=None, repr=False)


class Steps:
    """All steps in order. `watch` is called after each change with the step that changed."""

    def __init__(self, watch: Callable[[Step], None] = lambda _step: None) -> None:
        self.all = [Step(name) for name in NAMES]
        self._watch = watch
        self._by_name = {step.name: step for step in self.all}
        self.notes: list[str] = []  # said beside the figures

    def __getitem__(self, name: str) -> Step:
        return self._by_name[name]

    @contextmanager
    def running(self, name: str) -> Iterator[Step]:
        """Mark a step as running, then as done; as failed when the block raises."""
        step = self._by_name[name]
        step.state, step.started = "running", time.monotonic()
        self._watch(step)
        try:
            yield step
        except BaseException as error:
            step.state = "failed"
            name = "interrupted" if isinstance(error, KeyboardInterrupt) else type(error).__name__
            step.message = getattr(error, "what", None) or str(error) or name
            raise
        else:
            if step.state == "running":
                step.state = "done"
        finally:
            step.seconds = time.monotonic() - (step.started or 0)
            self._watch(step)

    def say(self, name: str, message: str) -> None:
        """Say how far a running step is."""
        self._by_name[name].message = message
        self._watch(self._by_name[name])

    def note(self, notes: Iterable[str]) -> None:
        """Have these said beside the figures, each once."""
        self.notes += [note for note in dict.fromkeys(notes) if note not in self.notes]

    def skip(self, name: str, why: str) -> None:
        """Mark a step as skipped, and say why."""
        step = self._by_name[name]
        step.state, step.message = "skipped", why
        self._watch(step)

    def skip_rest(self, why: str) -> None:
        """Mark every step that is still pending as skipped; the first says why."""
        pending = [step for step in self.all if step.state == "pending"]
        for number, step in enumerate(pending):
            self.skip(step.name, why if number == 0 else "")

    def document(self) -> list[dict[str, Any]]:
        """Return the steps as JSON data."""
        return [
            {
                "name": step.name,
                "state": step.state,
                "words": step.message,
                "seconds": None if step.seconds is None else round(step.seconds, 3),
            }
            for step in self.all
        ]
