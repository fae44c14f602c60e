"""One evaluation at a time, and a cut one leaves behind what the next command needs."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from hostkit.errors import BusyError, DeadlineError
from hostkit.evals.record import EvaluationLock, Record

RECORD = Record(
    evaluation_id="e" * 16, started_at="2026-11-30T10:00:00Z", pid=1, candidate={"step": 4000}, sample="full",
    verdict_before={}, step="run", job="f" * 16,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_a_second_evaluation_is_told_which_checkpoint_the_first_is_at():
    with EvaluationLock("/a", "drafter") as first:
        first.write(RECORD)
        with pytest.raises(BusyError) as caught, EvaluationLock("/a", "drafter"):
            pytest.fail("two at once")
    assert "step 4000" in caught.value.what and "'run'" in caught.value.what
    assert "--attach" in caught.value.hint


def test_other_evaluations_and_other_archives_are_not_in_each_others_way():
    with EvaluationLock("/a", "drafter"), EvaluationLock("/a", "other"), EvaluationLock("/b", "drafter"):
        pass


def test_the_record_outlives_the_process_and_the_lock_does_not(tmp_path):
    code = (
        "from hostkit.evals.record import *\n"
        "u = EvaluationLock('/a', 'drafter').__enter__()\n"
        f"u.write(Record.model_validate_json({RECORD.model_dump_json()!r}))\n"
        "import os; os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == -9
    with EvaluationLock("/a", "drafter") as found:
        assert found.read() == RECORD
        found.close()
        assert found.read() is None


def test_a_damaged_record_is_none():
    with EvaluationLock("/a", "drafter") as found:
        found.path.write_text('{"evaluation_id": ')
        assert found.read() is None


def test_following_ends_when_the_other_one_ends_and_tells_where_it_is():
    told, found, lock = [], [], EvaluationLock("/a", "drafter")
    told_once = threading.Event()

    def say(words):
        told.append(words)
        told_once.set()

    with lock:
        lock.write(RECORD)
        waiter = threading.Thread(target=lambda: found.append(EvaluationLock("/a", "drafter").wait(say)))
        waiter.start()
        assert told_once.wait(30)
        assert waiter.is_alive()
    waiter.join(30)
    assert not waiter.is_alive()
    assert "step 4000" in told[0]
    assert found == [RECORD]


def test_where_nobody_evaluates_there_is_nobody_to_follow():
    assert EvaluationLock("/a", "drafter").wait(pytest.fail) is None


def test_following_ends_with_the_commands_own_time_and_says_that_the_evaluation_runs_on():
    with EvaluationLock("/a", "drafter") as first:
        first.write(RECORD)
        with pytest.raises(DeadlineError, match="step 4000") as caught:
            EvaluationLock("/a", "drafter").wait(lambda _words: None, timeout=0.1)
    assert "runs on" in caught.value.hint
