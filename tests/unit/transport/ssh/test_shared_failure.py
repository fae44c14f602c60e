"""Who waited hears why somebody else failed; who asks later tries for itself, unless nobody has heard of it yet."""

from __future__ import annotations

import time

import pytest

from hostkit.errors import UnreachableError
from hostkit.transport.ssh.shared_failure import Failures


def test_who_asked_before_it_failed_is_told_and_who_asks_afterwards_may_try() -> None:
    failures, asked = Failures(), time.monotonic() - 1
    failures.raise_recent(asked)
    failures.record(UnreachableError("no answer", hop="pve"))
    with pytest.raises(UnreachableError):
        failures.raise_recent(asked)
    failures.raise_recent(time.monotonic() + 1)


def test_what_nobody_has_heard_of_is_told_once() -> None:
    failures = Failures()
    failures.defer(UnreachableError("no answer", hop="pve"))
    with pytest.raises(UnreachableError):
        failures.raise_recent(time.monotonic())
    failures.raise_recent(time.monotonic())
