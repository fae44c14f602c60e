"""`hostkit train-status` on the practice fleet, as a user types it, while the training is disturbed."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from hostkit.practice import lifecycle, training
from hostkit.practice.scenario import Laptop
from tests.practice.conftest import SETTINGS, Live


class Watch:
    """Asks for the status of one fleet's run."""

    def __init__(self, live: Live) -> None:
        self._root = live.root
        self._laptop = Laptop(live.root)

    def impatiently(self) -> None:
        """Take three seconds of silence for a stall from now on."""
        text = self._root.inventory.read_text()
        changed = text.replace(f"stall: {SETTINGS.stall}", "stall: 3s")
        assert changed != text
        self._root.inventory.write_text(changed)

    def now(self) -> dict[str, Any]:
        return self._laptop.ask("train-status")

    def until(self, verdict: str) -> dict[str, Any]:
        """Ask again until the verdict is there; the last answer if it never is."""
        last: dict[str, Any] = {}

        def look() -> bool | None:
            last.update(self.now())
            return True if last["verdict"] == verdict else None

        lifecycle.until(look, 90)
        return last


@pytest.fixture
def watch(live: Live) -> Watch:
    return Watch(live)


def test_a_training_that_steps_is_running_with_its_process_and_newest_checkpoint(
    live: Live, watch: Watch
) -> None:
    status = watch.now()
    assert (status["verdict"], status["exit"]) == ("RUNNING", 0)
    assert [process["identity"] for process in status["processes"]] == [live.who.model_dump()]
    assert status["step"]["live"] >= status["step"]["saved"] >= 2 * SETTINGS.save_every
    assert status["step"]["saved"] % SETTINGS.save_every == 0


def test_the_same_process_goes_on_stepping_between_two_looks(live: Live, watch: Watch) -> None:
    before = watch.now()
    step = training.live_step(live.root)
    assert lifecycle.until(lambda: True if training.live_step(live.root) > step else None, 60)
    after = watch.now()
    assert before["processes"][0]["identity"] == after["processes"][0]["identity"]
    assert after["step"]["live"] > before["step"]["live"]


def test_a_killed_training_is_dead_once_its_log_is_silent_for_long_enough(live: Live, watch: Watch) -> None:
    os.kill(live.who.pid, signal.SIGKILL)
    watch.impatiently()
    status = watch.until("DEAD")
    assert (status["verdict"], status["exit"]) == ("DEAD", 2), status["evidence"]
    assert status["processes"] == []


def test_a_stopped_training_is_stalled_at_once_and_running_when_it_goes_on(live: Live, watch: Watch) -> None:
    live.stop()
    status = watch.now()
    assert (status["verdict"], status["exit"]) == ("STALLED", 2)
    os.kill(live.who.pid, signal.SIGCONT)
    assert watch.until("RUNNING")["verdict"] == "RUNNING"


@pytest.mark.parametrize(("away", "stood"), [("pve", ["ct129"]), ("ct129", [])])
def test_a_host_on_the_way_that_is_gone_makes_it_unknown_and_is_named(
    live: Live, watch: Watch, away: str, stood: list[str]
) -> None:
    assert lifecycle.stop_server(live.root, away)
    status = watch.now()
    assert (status["verdict"], status["exit"]) == ("UNKNOWN", 3)
    assert [hop["name"] for hop in status["hops"] if hop["state"] == "failed"] == [away], status["evidence"]
    assert [hop["name"] for hop in status["hops"] if hop["state"] == "ok"] == stood
    assert away in " ".join(str(line) for line in status["evidence"])
    lifecycle.start_server(live.root, away)
    assert watch.until("RUNNING")["verdict"] == "RUNNING"


def test_a_half_written_newest_checkpoint_is_named_and_the_one_before_is_the_newest(
    live: Live, watch: Watch
) -> None:
    live.stop()  # so that no newer one comes
    steps = live.saved()
    newest = live.root.checkpoints / f"step_{steps[-1]}" / "checkpoint.pt"
    os.truncate(newest, newest.stat().st_size * 6 // 10)
    status = watch.now()
    assert status["step"]["saved"] == steps[-2]
    (half,) = [one for one in status["checkpoints"] if one["step"] == steps[-1]]
    assert half["complete"] is False
    assert half["reason"]


def test_a_container_that_is_stopped_makes_it_unknown(live: Live, watch: Watch) -> None:
    live.root.running_flag.unlink()
    status = watch.now()
    assert (status["verdict"], status["exit"]) == ("UNKNOWN", 3)
    assert [hop["name"] for hop in status["hops"] if hop["state"] == "failed"] == ["ct200"]
