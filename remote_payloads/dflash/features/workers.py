"""Target workers: threads that run copies of the frozen target and feed the queue, each on its own device.

Torch lets go of the interpreter lock while it computes, and devices work on their own: threads keep several
targets busy, share the samples, and end by being joined.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from dflash.data.samples import Sample
from dflash.features.queue import Closed, FeatureQueue
from dflash.features.source import MicroBatch, Origin, Plan, batch_features
from dflash.target.model import Target


class TargetWorkers:
    """A feature source behind a queue; worker i makes the micro-batches i, i + n, i + 2n, ... of a rank."""

    def __init__(
        self,
        samples: Sequence[Sample],
        plan: Plan,
        targets: Sequence[Target],
        origin: Origin,
        *,
        limit: int,
        first: int = 0,
    ) -> None:
        self.samples, self.plan, self.targets, self.origin = samples, plan, list(targets), origin
        self.queue: FeatureQueue[MicroBatch] = FeatureQueue(limit, first)
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(i, first), name=self._name(i), daemon=True)
            for i in range(len(self.targets))
        ]
        for thread in self._threads:
            thread.start()

    def _name(self, index: int) -> str:
        return f"{index} on {self.targets[index].device}"

    def get(self, number: int) -> MicroBatch:
        """The next micro-batch; raises ProducerDied, naming the worker, when one of them ended badly."""
        return self.queue.get(number)

    def measures(self) -> dict[str, Any]:
        """The queue's state, for the log."""
        return {"queue": self.queue.measures(), "workers": sum(t.is_alive() for t in self._threads)}

    def close(self) -> None:
        """Tell the workers to end and wait until they have: none is killed inside a computation."""
        self._stop.set()
        self.queue.close()
        for thread in self._threads:
            thread.join()

    def _work(self, index: int, first: int) -> None:
        # A worker draws the data order for itself: Plan keeps the epoch it is in.
        plan = self.plan.copy()
        number = first + index
        try:
            while not self._stop.is_set():
                chosen = [self.samples[i] for i in plan.numbers_at(number)]
                features = batch_features(self.targets[index], chosen, self.origin.taps)
                self.queue.put(number, MicroBatch(chosen, features, self.origin))
                number += len(self.targets)
        except Closed:
            pass
        except BaseException as error:  # noqa: BLE001 - whatever it was, the trainer must hear of it
            self.queue.fail(self._name(index), error)
