"""train-status as a command: which runs, which exit code, which document."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """Two runs on this machine, one finished and one never seen, and one behind a closed port."""
    (tmp_path / "log").write_text("step 9 loss 2\nstep 10 loss [red]2\n")
    processes = [{"script": f"no-such-{tmp_path.name}-{number}.py"} for number in range(3)]
    document = {
        "hostkit": 1,
        "archive": str(tmp_path / "archive"),
        "hosts": {
            "me": {"local": True, "python": sys.executable},
            "far": {"address": "127.0.0.1", "port": 1, "known_hosts": str(tmp_path / "known_hosts")},
        },
        "runs": {
            "done": {
                "host": "me",
                "process": processes[0],
                "log": {"path": str(tmp_path / "log")},
                "total_steps": 10,
            },
            "never": {"host": "me", "process": processes[1], "log": {"path": str(tmp_path / "none")}},
            "unreached": {"host": "far", "process": processes[2]},
        },
    }
    (tmp_path / "fleet.yaml").write_text(yaml.safe_dump(document))
    return tmp_path / "fleet.yaml"


def ask(inventory: Path, *argv: str) -> "subprocess.CompletedProcess[str]":
    start = [
        sys.executable,
        "-c",
        "from hostkit.cli import main; main()",
        "train-status",
        "--inventory",
        str(inventory),
    ]
    state = {"XDG_STATE_HOME": str(inventory.parent / "state"), "HOME": str(inventory.parent)}
    here = str(Path(__file__).parents[3])
    return subprocess.run(
        [*start, *argv],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **state, "PYTHONPATH": here},
    )


def document(inventory: Path, *argv: str) -> tuple[int, dict[str, Any]]:
    done = ask(inventory, "--json", *argv)
    return done.returncode, json.loads(done.stdout)


def test_one_run_is_one_document_with_its_exit_code(inventory: Path) -> None:
    code, found = document(inventory, "--run", "done")
    assert (code, found["schema"], found["run"], found["verdict"]) == (
        0,
        "hostkit.train-status/1",
        "done",
        "FINISHED",
    )
    code, found = document(inventory, "--run", "never")
    assert (code, found["exit"], found["verdict"]) == (3, 3, "UNKNOWN")


def test_a_host_that_is_not_reached_is_three_and_no_error(inventory: Path) -> None:
    code, found = document(inventory, "--run", "unreached")
    assert (code, found["verdict"]) == (3, "UNKNOWN")
    assert "far was not reached" in found["evidence"][0]
    assert found["hops"][0]["state"] == "failed"


def test_all_runs_are_asked_together_and_the_worst_decides(inventory: Path) -> None:
    code, found = document(inventory)
    assert (code, found["exit"], found["schema"]) == (3, 3, "hostkit.train-statuses/1")
    assert [one["run"] for one in found["runs"]] == ["done", "never", "unreached"]


def test_the_runs_stand_in_one_place_whether_one_is_asked_for_or_all(inventory: Path) -> None:
    _, one = document(inventory, "--run", "done")
    (run,) = one["runs"]
    assert run == {key: value for key, value in one.items() if key != "runs"}
    _, every = document(inventory)
    assert [run["schema"] for run in every["runs"]] == ["hostkit.train-status/1"] * 3


def test_ten_runs_of_a_host_are_one_probe(tmp_path: Path) -> None:
    counting = tmp_path / "counting-python"
    counting.write_text(f'#!/bin/sh\necho probe >>"{tmp_path}/probes"\nexec {sys.executable} "$@"\n')
    counting.chmod(0o755)
    runs = {f"run{number}": {"host": "me", "process": {"script": f"no-{number}.py"}} for number in range(10)}
    hosts = {"me": {"local": True, "python": str(counting)}}
    (tmp_path / "fleet.yaml").write_text(yaml.safe_dump({"hostkit": 1, "hosts": hosts, "runs": runs}))
    _, found = document(tmp_path / "fleet.yaml")
    assert [run["run"] for run in found["runs"]] == list(runs)
    assert (tmp_path / "probes").read_text() == "probe\n"


def test_log_lines_are_shown_for_several_runs_where_they_are_asked_for(inventory: Path) -> None:
    assert "step 10 loss [red]2" not in ask(inventory).stdout
    assert "step 10 loss [red]2" in ask(inventory, "--lines", "1").stdout


def test_a_page_shows_the_last_lines_as_they_are(inventory: Path) -> None:
    done = ask(inventory, "--run", "done", "--lines", "1")
    assert done.returncode == 0
    assert done.stdout.startswith("FINISHED  done on me: ended well")
    assert "step 10 loss [red]2" in done.stdout
    assert "step 9 loss" not in done.stdout


def test_quiet_says_nothing_when_all_is_well_and_the_page_when_it_is_not(inventory: Path) -> None:
    well = ask(inventory, "--run", "done", "--quiet")
    assert (well.returncode, well.stdout, well.stderr) == (0, "", "")
    assert ask(inventory, "--run", "never", "--quiet").stdout.startswith("UNKNOWN")


def test_a_wrong_name_or_number_is_a_usage_error(inventory: Path) -> None:
    assert ask(inventory, "--run", "drafter").returncode == 64
    for lines in ("-1", "x", "1e3", "9" * 50):
        assert ask(inventory, "--lines", lines).returncode == 64


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_command_and_what_it_started_here(tmp_path: Path, number: signal.Signals) -> None:
    begun = tmp_path / "begun"
    hanging = tmp_path / "hanging-python"
    hanging.write_text(f'#!/bin/sh\necho $$ >"{begun}.new" && mv "{begun}.new" "{begun}"\nexec sleep 600\n')
    hanging.chmod(0o755)
    document = {
        "hostkit": 1,
        "archive": str(tmp_path / "archive"),
        "hosts": {"me": {"local": True, "python": str(hanging)}},
        "runs": {"one": {"host": "me", "process": {"script": "x.py"}}},
    }
    (tmp_path / "fleet.yaml").write_text(yaml.safe_dump(document))
    words = [sys.executable, "-c", "from hostkit.cli import main; main()", "train-status", "--inventory"]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    environment["PYTHONPATH"] = str(Path(__file__).parents[3])
    with subprocess.Popen(
        [*words, str(tmp_path / "fleet.yaml")],
        env=environment,
        stderr=subprocess.PIPE,
        # a test run in the background has these ignored
        preexec_fn=_hearing,  # noqa: PLW1509  (the test has one thread)
    ) as command:
        _until(begun.exists)
        command.send_signal(number)
        _, said = command.communicate(timeout=30)
    assert command.returncode == 128 + number
    assert b"Traceback" not in said
    _until(lambda: not Path(f"/proc/{int(begun.read_text())}").exists())


def _until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def _hearing() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
