"""A job that is there already is attached to, whatever room is left beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hostkit.errors import RefusedError
from hostkit.jobs import Need

if TYPE_CHECKING:
    from .conftest import Bench

TOO_MUCH = Need(memory_bytes=2**60)


def test_head_room_is_asked_for_before_a_start_and_not_before_attaching(bench: Bench) -> None:
    spec = bench.spec("import time; print('up', flush=True); time.sleep(600)")
    with pytest.raises(RefusedError) as caught:
        bench.launch(spec, need=TOO_MUCH)
    assert caught.value.rule == "headroom-memory"
    first = bench.launch(spec)
    again = bench.launch(spec, need=TOO_MUCH)
    assert (again.job, again.attached) == (first.job, True)
