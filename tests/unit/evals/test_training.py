"""An evaluation says how the training was before it and after it."""

from __future__ import annotations

import copy

from hostkit.evals.training import training

RUNNING = {
    "verdict": "RUNNING",
    "exit": 0,
    "at": "2026-11-30T10:00:00Z",
    "evidence": ["step 100 came 2 s ago"],
    "step": {"live": 100, "saved": 80, "rate": 1.0, "lag": 20},
    "processes": [
        {
            "identity": {"boot_id": "b", "pid_ns": 1, "pid": 7, "start_ticks": 9, "init_start_ticks": 1},
            "argv": [],
        }
    ],
}


def status(**changes):
    found = copy.deepcopy(RUNNING)
    for key, value in changes.items():
        if key == "live":
            found["step"]["live"] = value
        elif key == "start_ticks":
            found["processes"][0]["identity"]["start_ticks"] = value
        else:
            found[key] = value
    return found


def test_the_same_process_further_on_is_untouched_and_needs_no_words():
    found = training(status(), status(live=140))
    assert found["same_process"] is True
    assert found["words"] == []


def test_a_reused_pid_is_another_process():
    found = training(status(), status(start_ticks=10, live=140))
    assert found["same_process"] is False
    assert any("another process" in words for words in found["words"])


def test_a_process_that_is_gone_is_said_with_the_verdict_and_its_evidence():
    found = training(status(), status(verdict="DEAD", exit=2, processes=[], evidence=["no such process"]))
    assert found["same_process"] is None
    assert "after: DEAD, no such process" in found["words"]
    assert any("seen before, not after" in words for words in found["words"])


def test_a_look_that_is_uncertain_compares_nothing():
    found = training(status(), status(verdict="UNKNOWN", exit=3, start_ticks=10))
    assert found["same_process"] is None


def test_a_log_without_a_new_step_is_said():
    later = status(at="2026-11-30T10:01:00Z")
    assert any("no new step since step 100" in words for words in training(status(), later)["words"])


def test_a_second_is_no_time_for_a_step():
    later = status(at="2026-11-30T10:00:01Z")
    assert training(status(), later)["words"] == []
