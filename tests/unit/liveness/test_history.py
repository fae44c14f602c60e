"""What is remembered of a run: a bounded series, and how far each of its readers has got."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path

import pytest

from hostkit.identity import Identity
from hostkit.inventory import load
from hostkit.liveness import history as module
from hostkit.liveness.history import PERSON, History
from hostkit.liveness.history_key import digest_of_0_1
from hostkit.liveness.past import Past, PastObservation
from hostkit.liveness.verdict import Verdict

SAMPLES = Path(__file__).parents[2] / "samples" / "0.1.0"


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return History(tmp_path / "state" / "hostkit" / "liveness" / "drafter.jsonl")


def look(history: History, at: float, verdict: Verdict = Verdict.RUNNING, reader: str | None = None) -> None:
    """Observe the run at `at` seconds, as `reader` or for nobody."""
    past = history.read(reader)
    history.append(past, past.then(verdict, at), reader)


def test_observations_come_back_in_order_with_since_when_and_what_was_before(history: History) -> None:
    for at, verdict in ((100, Verdict.STARTING), (200, Verdict.RUNNING), (300, Verdict.RUNNING)):
        look(history, at, verdict)
    past = history.read()
    assert [one.at for one in past.observations] == [100, 200, 300]
    assert past.last is not None and past.last.before is not None
    assert (past.last.since, past.last.before.verdict) == (200, "STARTING")


def test_what_one_reader_was_shown_is_still_news_to_another(history: History) -> None:
    look(history, 100, Verdict.RUNNING, "sweep")
    look(history, 200, Verdict.DEAD, PERSON)
    look(history, 300, Verdict.DEAD)
    shown = {reader: history.read(reader).shown for reader in ("sweep", PERSON, "nobody")}
    assert {reader: it and it.verdict for reader, it in shown.items()} == {
        "sweep": "RUNNING",
        PERSON: "DEAD",
        "nobody": None,
    }


def test_observations_in_quick_succession_are_one_unless_they_differ(history: History) -> None:
    for at, verdict in ((100, Verdict.RUNNING), (101, Verdict.RUNNING), (102, Verdict.STALLED)):
        look(history, at, verdict)
    assert [one.at for one in history.read().observations] == [100, 102]


@pytest.mark.parametrize(
    "garbage", [b"", b"\0\0\0", b"{", b"[" * 100_000, b'{"reader": 5}', b'{"at": "x"}', b"\xff\xfe"]
)
def test_what_cannot_be_read_is_passed_over(history: History, garbage: bytes) -> None:
    look(history, 100, reader=PERSON)
    with history.path.open("ab") as file:
        file.write(garbage)  # without a newline, as by a writer that was killed
    look(history, 200, reader=PERSON)
    assert [one.at for one in history.read().observations] == [100, 200]


@pytest.mark.parametrize("moment", ["1e300", "NaN", "Infinity", "-1", "4e12"])
@pytest.mark.parametrize("key", ["at", "since", "boot", "known_at"])
def test_a_moment_that_is_no_date_is_passed_over(history: History, key: str, moment: str) -> None:
    look(history, 100)
    damaged = {"at": "150", "verdict": '"DEAD"', "since": "150", key: moment}
    with history.path.open("a") as file:
        file.write("{" + ", ".join(f'"{name}": {value}' for name, value in damaged.items()) + "}\n")
    assert [one.at for one in history.read().observations] == [100]


def test_a_fifo_a_folder_or_a_full_disk_in_its_place_costs_the_memory_alone(history: History) -> None:
    history.path.parent.mkdir(parents=True)
    os.mkfifo(history.path)
    look(history, 100)
    assert history.read() == Past()
    history.path.unlink()
    history.path.mkdir()
    look(history, 100)
    assert history.read() == Past()
    history.path.rmdir()
    history.path.symlink_to("/dev/full")
    look(history, 100)
    assert history.read() == Past()


def test_the_file_is_private(history: History) -> None:
    look(history, 100)
    assert history.path.stat().st_mode & 0o777 == 0o600
    assert history.path.parent.stat().st_mode & 0o777 == 0o700


def test_the_file_stays_bounded_and_keeps_every_reader_s_position(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 20_000)
    look(history, 1, Verdict.STARTING, "sweep")
    for at in range(100, 20_000, 100):
        look(history, at, reader=PERSON)
    assert history.path.stat().st_size <= 20_000
    swept = history.read("sweep").shown
    assert swept is not None and swept.verdict == "STARTING"
    assert history.read(PERSON).last == history.read(PERSON).shown
    assert [path.name for path in history.path.parent.iterdir()] == [history.path.name]


def test_commands_at_the_same_time_lose_nothing(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCK_SECONDS", 60.0)
    identity = Identity(boot_id="b", pid_ns=1, pid=1, start_ticks=1, init_start_ticks=1)

    def command(number: int) -> None:
        for turn in range(8):
            at = 1000.0 * number + 10 * turn
            facts = PastObservation(at=at, verdict="RUNNING", since=at, identity=identity)
            history.append(Past(), facts, f"reader-{number}")

    threads = [threading.Thread(target=command, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = history.path.read_text().splitlines()
    assert all(json.loads(line) for line in lines)
    assert len(lines) == 2 * 8 * 8
    for number in range(8):
        shown = history.read(f"reader-{number}").shown
        assert shown is not None and shown.at == 1000.0 * number + 70


def test_the_one_observation_of_version_0_1_is_read_and_carried_over(history: History) -> None:
    history.path.parent.mkdir(parents=True)
    single = history.path.parent / "drafter-4d6a8bcb3005.json"
    shutil.copy(SAMPLES / "history" / single.name, single)
    old = History(history.path, single)
    past = old.read(PERSON)
    assert past.last is not None and past.last.identity is not None
    assert (past.last.verdict, past.last.step, past.last.identity.pid) == ("RUNNING", 170, 13945)
    assert past.shown == past.last
    look(old, past.last.at + 60)
    assert [one.step for one in old.read().observations] == [170, 170]
    assert old.read(PERSON).shown == past.shown


def test_the_file_of_version_0_1_is_found_by_the_name_that_it_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    inventory = load(SAMPLES / "inventory" / "fleet.yaml")
    assert digest_of_0_1(inventory, "drafter") == "a03ca0bf6672"
