"""Who is the run in a table of processes: every way to start one is known, and whoever only speaks of it is not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from run import processes

# numbers that no process of this machine has
FIRST = 5_000_001
BELOW = FIRST + 1
Find = Callable[..., dict[str, Any]]
PY, TRAIN = "/v/bin/python3", ["python", "train.py"]


@pytest.fixture
def find(monkeypatch: pytest.MonkeyPatch) -> Find:
    """Look for a run in a table: each argv is the child of the one before it."""

    def look(process: dict[str, Any], *argvs: list[str], exe: str | None = None) -> dict[str, Any]:
        rows: processes.Rows = {1: row(1, 0, ["/sbin/init"])}
        for number, argv in enumerate(argvs):
            rows[FIRST + number] = row(FIRST + number, FIRST + number - 1 if number else 1, argv)
        links = {"cwd": "/w", "exe": exe}
        monkeypatch.setattr(processes, "link", lambda _pid, name: links[name])
        return processes.find(rows, process, None, {"wall": 0.0, "ticks": 10_000, "hz": 100})

    return look


def row(pid: int, ppid: int, argv: list[str]) -> processes.Row:
    known = {"pid": pid, "ppid": ppid, "argv": argv, "comm": os.path.basename(argv[0])[:15], "state": "S"}
    return {**known, "session": pid, "cpu_ticks": 0, "threads": 1, "start_ticks": 1000, "uid": 0}


def pids(found: dict[str, Any]) -> list[int]:
    return [one["pid"] for one in found["processes"] if one["role"] != "launcher"]


@pytest.mark.report("a1", "a3")
@pytest.mark.parametrize(
    "argv",
    [
        ["tmux", "new-session", "-d", "-s", "t", "python train.py"],
        ["SCREEN", "-dmS", "x", *TRAIN],
        ["watch", "-n1", "pgrep", "-f", "train.py"],
        ["script", "-c", "python train.py", "log"],
        ["docker", "exec", "c", *TRAIN],
        ["flock", "/l", *TRAIN],
        ["py-spy", "record", "--", *TRAIN],
        ["uv", "run", "train.py"],
        [PY, "/v/bin/conda", "run", "-n", "e", *TRAIN],
        [PY, "/v/bin/black", "train.py"],
        [PY, "-m", "pytest", "train.py"],
        ["dhclient", "-H", "train.py"],
        ["sshd: train.py@pts/0"],
        ["ray::train.py"],
    ],
    ids=" ".join,
)
def test_one_that_only_carries_the_word_is_not_the_run_and_its_child_is(find: Find, argv: list[str]) -> None:
    assert pids(find({"script": "train.py"}, argv)) == []
    assert pids(find({"script": "train.py"}, argv, TRAIN)) == [BELOW]


@pytest.mark.report("a15")
@pytest.mark.parametrize(
    "argv",
    [
        ["python3.13t", "-PIO", "-OO", "train.py"],
        [PY, "-X", "frozen_modules=off", "-Wd", "/w/train.py"],
        ["/nix/store/x/bin/.python3.11-wrapped", "train.py"],
        [PY, "/v/bin/coverage", "run", "--branch", "train.py", "--lr", "1"],
        [PY, "/usr/bin/ipython", "train.py"],
        [PY, "/v/bin/kernprof", "-l", "train.py"],
        [PY, "-m", "pdb", "train.py"],
    ],
    ids=" ".join,
)
def test_every_way_to_start_the_script_in_this_very_process_is_the_run(find: Find, argv: list[str]) -> None:
    assert pids(find({"script": "train.py"}, argv)) == [FIRST]


@pytest.mark.parametrize(
    ("declared", "given", "fits"),
    [
        (["--config", "b.yaml"], ["--config=b.yaml"], True),
        (["--config=b.yaml"], ["--config", "b.yaml"], True),
        (["b.yaml"], ["--config=b.yaml"], True),
        (["--config=b.yaml"], ["--config", "a.yaml", "b.yaml"], False),
        (["b.yaml"], ["--config", "ab.yaml"], False),
    ],
)
def test_an_option_and_its_value_may_be_one_word_or_two(
    find: Find, declared: list[str], given: list[str], fits: bool
) -> None:
    found = find({"script": "train.py", "args": declared}, [*TRAIN, *given])
    assert pids(found) == ([FIRST] if fits else [])


@pytest.mark.report("a5")
@pytest.mark.parametrize(
    "argv",
    [
        ["bash", "run.sh"],
        ["sh", "-c", "python train.py; sleep 600"],
        ["flock", "/l", *TRAIN],
        ["/usr/bin/tini", "--", *TRAIN],
        ["make", "train"],
        ["systemd-run", "--scope", *TRAIN],
        [PY, "/v/bin/conda", "run", *TRAIN],
    ],
    ids=" ".join,
)
def test_a_wrapper_in_the_pidfile_stands_for_what_lives_below_it_and_for_nothing_else(
    find: Find, tmp_path: Path, argv: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "PID_MAX", FIRST + 9)
    (tmp_path / "pid").write_text(f"{FIRST}\n")
    process = {"pidfile": str(tmp_path / "pid")}
    assert pids(find(process, argv, TRAIN)) == [BELOW]
    for left in ([argv], [argv, ["sleep", "600"]], [argv, ["tee", "train.log"]]):
        found = find(process, *left)
        assert pids(found) == []
        assert "only a wrapper" in found["pidfile"]["reason"]


@pytest.mark.report("a9")
@pytest.mark.parametrize(
    "text", ["+{}", "0{}", "{}.0", "\ufeff{}", "{}\0", '{{"pid": {}}}', "{},", "-{}", "pid: {}"]
)
def test_a_pidfile_that_holds_more_than_a_number_names_nobody(
    find: Find, tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "PID_MAX", FIRST + 9)
    process = {"pidfile": str(tmp_path / "pid")}
    (tmp_path / "pid").write_text(f"{FIRST}\r\n\n")
    assert pids(find(process, TRAIN)) == [FIRST]
    (tmp_path / "pid").write_text(text.format(FIRST))
    found = find(process, TRAIN)
    assert pids(found) == []
    assert found["pidfile"]["valid"] is False


@pytest.mark.report("a7")
@pytest.mark.parametrize(
    ("words", "expects"),
    [
        (["torchrun", "--nproc_per_node", "4"], 4),
        (["torchrun", "--nproc-per-node=gpu"], None),
        (["accelerate", "launch", "--num_processes=2"], 2),
        (["accelerate", "launch", "--num_processes", "16", "--num_machines", "2"], None),
        (["deepspeed", "--num_gpus", "8"], 8),
    ],
)
def test_a_launcher_says_how_many_workers_this_host_has(
    find: Find, words: list[str], expects: int | None
) -> None:
    found = find({"script": "train.py"}, [PY, f"/v/bin/{words[0]}", *words[1:], "train.py"], TRAIN)
    assert [one["expects"] for one in found["processes"] if one["role"] == "launcher"] == [expects]
    assert pids(found) == [BELOW]


def test_what_was_noted_of_a_process_for_one_run_says_nothing_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    links = {"cwd": None, "exe": PY}
    monkeypatch.setattr(processes, "link", lambda _pid, name: links[name])
    rows = {1: row(1, 0, ["/sbin/init"]), FIRST: row(FIRST, 1, [PY, "train.py"])}
    now = {"wall": 0.0, "ticks": 10_000, "hz": 100}
    alone = processes.find(rows, {"script": "other.py"}, None, now)
    for first in ({"script": "/srv/a/train.py"}, {"script": "train.py", "args": ["b"]}):
        processes.find(rows, first, None, now)
        assert processes.find(rows, {"script": "other.py"}, None, now) == alone


@pytest.mark.parametrize(
    "argv", [["-bash"], ["/usr/bin/tee", "-a", "log"], ["tmux: server"], ["nice", *TRAIN], ["conmon"]]
)
def test_what_only_starts_the_run_or_holds_its_log_is_a_wrapper(argv: list[str]) -> None:
    assert processes.wraps(row(FIRST, 1, argv))


@pytest.mark.parametrize("argv", [TRAIN, [PY, "/v/bin/conda", "run", *TRAIN], ["wandb-core"], []])
def test_what_may_be_the_run_itself_is_none(argv: list[str]) -> None:
    assert not processes.wraps({**row(FIRST, 1, ["x"]), "argv": argv})
