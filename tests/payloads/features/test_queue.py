"""The queue keeps order and its bound in bytes, never locks up, and passes a worker's death on."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from dflash.features.queue import Closed, FeatureQueue, ProducerDied


@dataclass
class Item:
    number: int
    bytes: int = 10


def start(work: object, *args: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=args, daemon=True)  # type: ignore[arg-type]
    thread.start()
    return thread


def test_items_come_in_order_whoever_made_them() -> None:
    queue: FeatureQueue[Item] = FeatureQueue(limit=35, first=4)
    makers = [start(lambda i: [queue.put(n, Item(n)) for n in range(4 + i, 40, 3)], i) for i in range(3)]
    assert [queue.get(n).number for n in range(4, 40)] == list(range(4, 40))
    for maker in makers:
        maker.join(5)
        assert not maker.is_alive()


def test_no_more_bytes_wait_than_allowed() -> None:
    queue: FeatureQueue[Item] = FeatureQueue(limit=30)
    maker = start(lambda: [queue.put(n, Item(n)) for n in range(10)])
    maker.join(0.2)
    assert maker.is_alive(), "the fourth item has to wait"
    assert queue.measures()["bytes"] == 30
    for n in range(10):
        assert queue.get(n).number == n
    maker.join(5)
    measures = queue.measures()
    assert measures["depth"] == measures["bytes"] == 0
    assert measures["producer_wait_s"] > 0.1


def test_the_wanted_item_is_let_into_a_full_queue() -> None:
    queue: FeatureQueue[Item] = FeatureQueue(limit=20)
    queue.put(1, Item(1))
    queue.put(2, Item(2))
    late = start(queue.put, 0, Item(0, bytes=1000))
    late.join(5)
    assert not late.is_alive(), "a late worker must not be locked out by those ahead of it"
    assert [queue.get(n).number for n in range(3)] == [0, 1, 2]


def test_a_death_is_raised_where_items_are_taken_and_names_the_worker() -> None:
    queue: FeatureQueue[Item] = FeatureQueue(limit=20)
    death = start(queue.fail, "1 on cuda:3", RuntimeError("out of memory"))
    with pytest.raises(ProducerDied, match="worker 1 on cuda:3 died: RuntimeError: out of memory"):
        queue.get(0)
    death.join(5)


def test_a_closed_queue_lets_waiting_workers_go() -> None:
    queue: FeatureQueue[Item] = FeatureQueue(limit=5)
    queue.put(0, Item(0))
    ended: list[str] = []

    def work() -> None:
        try:
            queue.put(1, Item(1))
        except Closed:
            ended.append("closed")

    worker = start(work)
    queue.close()
    worker.join(5)
    assert ended == ["closed"]


def test_an_item_out_of_turn_is_a_mistake() -> None:
    queue: FeatureQueue[Item] = FeatureQueue(limit=5)
    with pytest.raises(ValueError, match="0 is next"):
        queue.get(3)
