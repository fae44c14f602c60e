"""A queue of features between target workers and a trainer: in order, bounded in bytes, honest about deaths.

Items have numbers and are taken in that order, whoever made them, so that a resumed run sees the same data.
The item that is wanted next is always let in, however full the queue is: else workers that ran ahead would
lock it out. A worker's death is raised where items are taken: nobody trains on fewer workers unnoticed.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Generic, Protocol, TypeVar


class Sized(Protocol):
    """Something that knows its bytes."""

    @property
    def bytes(self) -> int: ...


T = TypeVar("T", bound=Sized)


class ProducerDied(Exception):  # noqa: N818 - reads as what happened
    """A target worker ended with an error; carries its name."""

    def __init__(self, worker: str, cause: BaseException) -> None:
        super().__init__(f"target worker {worker} died: {type(cause).__name__}: {cause}")
        self.worker = worker


class Closed(Exception):  # noqa: N818 - tells a worker to end
    """The queue was closed while a worker waited."""


class FeatureQueue(Generic[T]):
    """Numbered items, first `first`, at most `limit` bytes waiting (plus the one that is wanted next)."""

    def __init__(self, limit: int, first: int = 0) -> None:
        self.limit = limit
        self._next = first
        self._items: dict[int, T] = {}
        self._bytes = 0
        self._changed = threading.Condition()
        self._death: ProducerDied | None = None
        self._closed = False
        self._producer_wait = self._consumer_wait = 0.0

    def put(self, number: int, item: T) -> None:
        """Hand an item over; waits for room. Raises Closed when the consumer is gone."""
        began = time.monotonic()
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._has_room(number, item))
            self._producer_wait += time.monotonic() - began
            if self._closed:
                raise Closed
            self._items[number] = item
            self._bytes += item.bytes
            self._changed.notify_all()

    def get(self, number: int) -> T:
        """Take item `number`, the next in order; waits for it. Raises ProducerDied when it will not come."""
        began = time.monotonic()
        with self._changed:
            if number != self._next:
                raise ValueError(f"item {number} asked for, {self._next} is next")
            self._changed.wait_for(lambda: number in self._items or self._death is not None)
            self._consumer_wait += time.monotonic() - began
            if self._death is not None:
                raise self._death
            item = self._items.pop(number)
            self._bytes -= item.bytes
            self._next += 1
            self._changed.notify_all()
            return item

    def fail(self, worker: str, cause: BaseException) -> None:
        """A worker's last word."""
        with self._changed:
            self._death = self._death or ProducerDied(worker, cause)
            self._changed.notify_all()

    def close(self) -> None:
        """Let waiting workers go."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def measures(self) -> dict[str, Any]:
        """Depth and bytes now, and seconds waited on each side since the last call."""
        with self._changed:
            out = {
                "depth": len(self._items),
                "bytes": self._bytes,
                "producer_wait_s": round(self._producer_wait, 4),
                "consumer_wait_s": round(self._consumer_wait, 4),
            }
            self._producer_wait = self._consumer_wait = 0.0
            return out

    def _has_room(self, number: int, item: T) -> bool:
        return number == self._next or self._bytes + item.bytes <= self.limit
