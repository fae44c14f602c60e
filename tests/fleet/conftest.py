"""Fleets for tests: a fresh one for each test, or one for a whole module that only looks."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.fleet.fleet import Fleet


def worker_number() -> int:
    """Return 1 for pytest alone or its first worker, 2 for the second."""
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) + 1


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """A fleet of the test's own, to break as it likes."""
    raised = Fleet.up(worker_number())
    try:
        yield raised
    finally:
        raised.down()


@pytest.fixture(scope="module")
def shared_fleet() -> Iterator[Fleet]:
    """One fleet for all tests of a module: for those that leave it as they found it."""
    raised = Fleet.up(worker_number())
    try:
        yield raised
    finally:
        raised.down()
