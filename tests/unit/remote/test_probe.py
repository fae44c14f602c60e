"""The probe against real processes of this machine: who is the run, and who only looks like it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import probe
from run import processes

TRAINER = """
import signal, sys
print("step 1 loss 2.0", flush=True)
print("ready", file=sys.stderr, flush=True)
signal.sigwait([signal.SIGTERM])
"""
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture(autouse=True)
def any_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the probe is part of a test run, which may be older than a probe ever gets."""
    monkeypatch.setattr(probe, "YOUNG", 100 * 86400)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with a trainer of a name that no other process on this machine has."""
    script = tmp_path / f"train_{os.getpid()}_{tmp_path.name[-6:]}.py"
    script.write_text(f"#!{sys.executable}\n{TRAINER}")
    script.chmod(0o755)
    return script


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start processes, each in a session of its own, wait until they are ready, and end those at the end."""
    begun: list[subprocess.Popen[bytes]] = []

    def run(
        argv: list[str], *, ready: bool = True, log: str = "log", **more: Any
    ) -> "subprocess.Popen[bytes]":
        with (tmp_path / log).open("ab") as out, (tmp_path / "ready").open("ab") as err:
            mark = err.seek(0, os.SEEK_END)
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                **{"cwd": tmp_path, **more},
            )
        begun.append(child)
        if ready:
            until(lambda: b"ready" in (tmp_path / "ready").read_bytes()[mark:])
        return child

    yield run
    for child in begun:
        if processes_of_session(child.pid):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def processes_of_session(session: int) -> list[int]:
    return [pid for pid, row in processes.table()[0].items() if row["session"] == session]


def until(condition: Callable[[], Any], seconds: float = 100) -> Any:
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.01)
    return value


def ask(process: dict[str, Any], **more: Any) -> dict[str, Any]:
    reply: dict[str, Any] = probe.serve({"runs": {"it": {"process": process, **more}}})
    json.dumps(reply)
    run: dict[str, Any] = reply["runs"]["it"]
    return run


def pids(process: dict[str, Any], **more: Any) -> list[int]:
    return [one["pid"] for one in ask(process, **more)["processes"]]


@pytest.mark.report("a15")
def test_every_declared_form_of_the_trainer_is_found(here: Path, start: Start) -> None:
    name, python = here.name, sys.executable
    forms = [
        [f"./{name}"],
        [python, name],
        [python, "-u", "-X", "utf8", "-Wignore", str(here)],
        [python, "-uBs", f"./{name}", "--lr", "1"],
        [python, "--", name],
        [python, "-u", "-m", here.stem],
        [python, f"-um{here.stem}"],
    ]
    for argv in forms:
        child = start(argv)
        want = (
            {"module": here.stem}
            if any("m" in word and word.startswith("-") for word in argv[1:])
            else {"script": name}
        )
        assert pids(want) == [child.pid], argv
        child.kill()
        child.wait()
        assert pids(want) == [], argv


def test_an_interpreter_of_another_name_or_place_is_one(here: Path, start: Start, tmp_path: Path) -> None:
    venv = tmp_path / "venv" / "bin"
    venv.mkdir(parents=True)
    (venv / "python3.11").symlink_to(sys.executable)
    child = start([str(venv / "python3.11"), here.name])
    assert pids({"script": here.name}) == [child.pid]
    other = start(["bash", "-c", 'exec -a trainer "$0" "$1"', sys.executable, here.name])
    assert pids({"script": here.name}) == sorted([child.pid, other.pid])


def test_the_declared_script_may_be_a_name_a_path_or_the_end_of_one(here: Path, start: Start) -> None:
    child = start([sys.executable, here.name])
    for script in (here.name, str(here), f"./{here.name}"):
        assert pids({"script": script}) == [child.pid], script
    for script in (here.name[1:], f"other/{here.name}", f"/elsewhere/{here.name}", here.stem):
        assert pids({"script": script}) == [], script


@pytest.mark.report("a1")
def test_nobody_who_only_speaks_of_the_trainer_is_it(here: Path, start: Start, tmp_path: Path) -> None:
    name, wait = here.name, "echo ready >&2; read line <$0/fifo"
    os.mkfifo(tmp_path / "fifo")
    start(["sh", "-c", f"true python {name}; {wait}", str(tmp_path), name])
    start(["bash", "-c", wait, str(tmp_path), "python3", name, "train"])
    start([sys.executable, "-c", TRAINER, name])
    start([sys.executable, "-u", "-X", name, "-c", TRAINER, "python", name])
    (tmp_path / "vim").write_text(f"#!/bin/sh\n{wait.replace('$0', str(tmp_path))}\n")
    (tmp_path / "vim").chmod(0o755)
    start([str(tmp_path / "vim"), name])
    start(["tail", "-f", str(here)], ready=False)
    start(["timeout", "60", "sh", "-c", f"{wait} # {name}", str(tmp_path)])
    start(["bash", "-c", f"exec -a {name} sleep 60"], ready=False)
    until(
        lambda: any(
            row["comm"] == "sleep" and row["argv"][:1] == [name] for row in processes.table()[0].values()
        )
    )
    found = ask({"script": name})
    assert found["processes"] == []
    assert found["near"]
    assert not any(one["doubt"] for one in found["near"])


def test_the_one_who_asks_and_those_above_him_are_never_the_run() -> None:
    me = os.getpid()
    above = {me, *processes.ancestors(processes.table()[0], me)}
    kind, word, _ = processes.runs_what(processes.read_process(me)["argv"], processes.link(me, "exe"))
    found = ask({kind: word} if kind in ("script", "module") else {"script": "pytest"})
    assert not above & {one["pid"] for one in found["processes"] + found["near"]}


def test_like_runs_are_told_apart_by_arguments_and_by_folder(
    here: Path, start: Start, tmp_path: Path
) -> None:
    (tmp_path / "b").mkdir()
    one = start([sys.executable, str(here), "--config", "a.yaml"])
    two = start([sys.executable, str(here), "--config", "b.yaml"], cwd=tmp_path / "b")
    assert pids({"script": here.name}) == sorted([one.pid, two.pid])
    assert pids({"script": here.name, "args": ["a.yaml"]}) == [one.pid]
    assert pids({"script": here.name, "args": ["yaml"]}) == []
    assert pids({"script": here.name, "cwd": str(tmp_path / "b")}) == [two.pid]
    tops = {row["root"] for row in ask({"script": here.name})["processes"]}
    assert tops == {one.pid, two.pid}


def test_what_differs_is_told_of_one_that_runs_the_script_and_is_not_counted(
    here: Path, start: Start, tmp_path: Path
) -> None:
    child = start([sys.executable, str(here), "--config", "a.yaml"])
    tail = ["tail", "-f", str(here)]
    start(tail, ready=False)
    until(lambda: any(row["argv"] == tail for row in processes.table()[0].values()))
    for process, why in (
        ({"args": ["--config", "b.yaml", "--fast"]}, f"runs {here.name}, but its args lack b.yaml --fast"),
        ({"cwd": "/"}, f"runs {here.name}, but works in {tmp_path}, not in /"),
    ):
        found = ask({"script": here.name, **process})
        assert found["processes"] == []
        assert (found["near"][0]["pid"], found["near"][0]["why"]) == (child.pid, why)
        assert not found["near"][0]["doubt"]
        assert {one["why"] for one in found["near"][1:]} == {"only mentions it"}


def test_a_zombie_is_not_alive(here: Path, start: Start, tmp_path: Path) -> None:
    parent = (
        f"import subprocess,sys,signal\nsubprocess.Popen([sys.executable, {here.name!r}])\nsignal.pause()"
    )
    start([sys.executable, "-c", parent])
    trainer = until(lambda: pids({"script": here.name}))[0]
    row = processes.read_process(trainer)
    last = {"boot_id": processes.boot_id(), "pid_ns": processes.inode("self", "ns/pid"), "pid": trainer}
    last.update(start_ticks=row["start_ticks"], exe=processes.link(trainer, "exe"))
    os.kill(trainer, signal.SIGKILL)
    until(lambda: processes.read_process(trainer)["state"] == "Z")
    found = ask({"script": here.name}, last=last)
    assert found["processes"] == []
    assert found["record"] == {"pid": trainer, "exe": last["exe"], "state": "zombie"}
    assert trainer in [one["pid"] for one in found["zombies"]]


def test_a_stopped_process_says_so(here: Path, start: Start) -> None:
    child = start([sys.executable, here.name])
    os.kill(child.pid, signal.SIGSTOP)
    until(lambda: processes.read_process(child.pid)["state"] == "T")
    assert [one["state"] for one in ask({"script": here.name})["processes"]] == ["T"]


@pytest.mark.report("a7")
def test_a_launcher_has_workers_and_workers_have_helpers(here: Path, start: Start, tmp_path: Path) -> None:
    (tmp_path / "torchrun").write_text(
        "import subprocess,sys\n"
        "kids = [subprocess.Popen([sys.executable, '-u', sys.argv[-1], f'--rank={n}']) for n in range(2)]\n"
        "[kid.wait() for kid in kids]\n"
    )
    here.write_text(f"import os\n{TRAINER.replace('signal.sigwait', 'os.fork(); signal.sigwait')}")
    start([sys.executable, str(tmp_path / "torchrun"), "--nproc-per-node=2", here.name])
    found = until(lambda: len(rows := ask({"script": here.name})["processes"]) == 5 and rows)
    roles = sorted(one["role"] for one in found)
    assert roles == ["helper", "helper", "launcher", "worker", "worker"]
    assert len({one["root"] for one in found}) == 1
    assert [one["expects"] for one in found if one["role"] == "launcher"] == [2]


@pytest.mark.report("a15")
def test_a_changed_title_is_known_by_what_was_seen_before(here: Path, start: Start, tmp_path: Path) -> None:
    here.write_text(
        "import ctypes, os\n"
        "text = open('/proc/self/stat').read().rsplit(')', 1)[1].split()\n"
        "at, end = int(text[45]), int(text[46])\n"
        "title = b'dflash: training'.ljust(end - at, b'\\0')\n"
        f"ctypes.memmove(at, title, end - at)\n{TRAINER}"
    )
    child = start([sys.executable, here.name, "--padding", "x" * 40])
    row = processes.read_process(child.pid)
    assert row["argv"] == ["dflash: training"]
    last = {"boot_id": processes.boot_id(), "pid_ns": processes.inode("self", "ns/pid"), "pid": child.pid}
    last.update(start_ticks=row["start_ticks"], exe=processes.link(child.pid, "exe"))
    known = ask({"script": here.name}, last=last)["processes"]
    assert [(one["pid"], one["how"]) for one in known] == [(child.pid, "record")]
    unknown = ask({"script": here.name}, log={"path": str(tmp_path / "log")})
    assert (unknown["processes"], [one["pid"] for one in unknown["titles"]]) == ([], [child.pid])
    for script in (str(here), here.name):
        assert [one["pid"] for one in ask({"script": script})["titles"]] == [child.pid], "it works beside it"
    elsewhere = {"script": sys.executable}
    log = tmp_path / "another.log"
    log.touch()
    asked = {"log": {"path": str(log)}}
    assert [one["pid"] for one in ask(elsewhere, **asked)["titles"]] == [child.pid], (
        "begun anywhere by its path"
    )
    os.utime(log, (time.time() - 1000,) * 2)
    assert ask(elsewhere, **asked)["titles"] == [], "a server, say, that began after the log had ended"
    os.utime(log)
    assert ask({**elsewhere, "cwd": "/srv"}, **asked)["titles"] == [], "a declared directory tells them apart"
    assert ask({"script": here.name}, last={**last, "start_ticks": 1})["record"]["state"] == "reused"


@pytest.mark.report("a9")
@pytest.mark.parametrize("text", ["1", "0", "-1", "", "12\n34", "abc", "99999999", "4194304", "0x10", " 12"])
def test_a_pidfile_with_anything_else_than_a_process_of_ours_is_invalid(text: str, tmp_path: Path) -> None:
    (tmp_path / "pid").write_text(text)
    found = ask({"pidfile": str(tmp_path / "pid")})
    assert found["processes"] == []
    assert found["pidfile"]["valid"] is False
    assert found["pidfile"]["reason"]


def test_a_pidfile_names_the_run_even_under_a_changed_title(here: Path, start: Start, tmp_path: Path) -> None:
    child = start([sys.executable, here.name])
    (tmp_path / "pid").write_text(f"{child.pid}\n")
    found = ask({"pidfile": str(tmp_path / "pid")})
    assert [(one["pid"], one["how"]) for one in found["processes"]] == [(child.pid, "pidfile")]
    os.utime(tmp_path / "pid", (1, 1))
    assert "given anew" in ask({"pidfile": str(tmp_path / "pid")})["pidfile"]["reason"]


@pytest.mark.report("a5")
def test_a_pidfile_that_names_the_wrapper_stands_for_what_lives_below_it(
    here: Path, start: Start, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    shell = start(["sh", "-c", f"{sys.executable} {here.name}; read line <fifo"])
    (tmp_path / "pid").write_text(f"{shell.pid}\n")
    trainer = pids({"pidfile": str(tmp_path / "pid")})
    assert trainer == pids({"script": here.name}) != [shell.pid]
    os.kill(trainer[0], signal.SIGKILL)
    until(lambda: not pids({"script": here.name}))
    assert "only a wrapper" in ask({"pidfile": str(tmp_path / "pid")})["pidfile"]["reason"]
    log = ask({"script": here.name}, log={"path": str(tmp_path / "log")})["log"]
    assert [one["pid"] for one in log["writers"]] == [shell.pid]


def test_the_log_is_found_by_the_process_s_open_files(here: Path, start: Start, tmp_path: Path) -> None:
    start([sys.executable, here.name])
    log = ask({"script": here.name})["log"]
    assert (log["path"], log["from"], log["tail"]) == (
        str(tmp_path / "log"),
        "open files",
        "step 1 loss 2.0\n",
    )
    remembered = ask({"script": "no-such-script.py"}, log={"path": None, "known": log["path"]})["log"]
    assert (remembered["from"], remembered["tail"]) == ("remembered", log["tail"])
    given = ask({"script": here.name}, log={"path": str(tmp_path / "log")})["log"]
    assert (given["held"], given["from"], given["inode"]) == (True, "inventory", log["inode"])


def test_a_log_that_was_deleted_or_renamed_is_read_through_the_process(
    here: Path, start: Start, tmp_path: Path
) -> None:
    start([sys.executable, here.name])
    declared = {"path": str(tmp_path / "log")}
    (tmp_path / "log").rename(tmp_path / "log.1")
    (tmp_path / "log").write_text("")
    renamed = ask({"script": here.name}, log=declared)["log"]
    assert (renamed["renamed"], renamed["tail"]) == (str(tmp_path / "log.1"), "step 1 loss 2.0\n")
    (tmp_path / "log").unlink()
    (tmp_path / "log.1").rename(tmp_path / "log")
    (tmp_path / "log").unlink()
    deleted = ask({"script": here.name}, log=declared)["log"]
    assert (deleted["deleted"], deleted["error"], deleted["tail"]) == (True, None, "step 1 loss 2.0\n")


def test_another_log_than_the_process_s_is_told_from_it(here: Path, start: Start, tmp_path: Path) -> None:
    start([sys.executable, here.name])
    (tmp_path / "old.log").write_text("step 9\n")
    log = ask({"script": here.name}, log={"path": str(tmp_path / "old.log")})["log"]
    assert (log["held"], log["tail"]) == (False, "step 9\n")
    assert log["others"][0]["path"] == str(tmp_path / "log")


@pytest.mark.report("b1", "b3", "b5")
@pytest.mark.parametrize(
    "kind",
    [
        "line of 300 KiB",
        "that line ended",
        "sparse 2 GiB",
        "redraws",
        "cut characters",
        "folder",
        "pipe",
        "none",
    ],
)
def test_any_log_is_read_within_bounds(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    if kind == "line of 300 KiB":
        path.write_text("step 7 loss 2\n" + json.dumps({"x": "y" * 300_000}))
    elif kind == "that line ended":
        path.write_text("step 7 loss 2\n" + "y" * 300_000 + "\r\n")
    elif kind == "sparse 2 GiB":
        with path.open("wb") as file:
            file.truncate(2 << 30)
    elif kind == "redraws":
        path.write_text("header\n" + "\r".join(f"{n}/50000" for n in range(50_000)))
    elif kind == "cut characters":
        path.write_bytes("█".encode() * 6000 + b"\nstep 3\n\xe2\x96")
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    log = ask({"script": "no-such-script.py"}, log={"path": str(path)})["log"]
    assert len(json.dumps(log)) < 120_000
    assert len(log["tail"]) <= 3 * 16384
    if kind in ("line of 300 KiB", "that line ended"):
        assert log["tail"].startswith("step 7 loss 2\n")
        assert log["cut"] > 250_000
    elif kind == "redraws":
        assert log["tail"].endswith("/50000")
    elif kind == "cut characters":
        assert "step 3\n" in log["tail"]
    elif kind in ("folder", "pipe", "none"):
        assert log["error"]


def test_checkpoints_come_with_their_completeness_and_the_room_they_have(tmp_path: Path) -> None:
    (tmp_path / "step_5").mkdir()
    (tmp_path / "step_5" / "checkpoint.pt").write_bytes(b"PK\3\4 half a file")
    wanted = {"root": str(tmp_path), "pattern": "step_{step}/checkpoint.pt", "marker": None}
    saves = ask({"script": "x.py"}, checkpoints=wanted)["checkpoints"]
    assert [(one["step"], one["complete"]) for one in saves["found"]] == [(5, False)]
    assert saves["space"]["free"] > 0
    assert ask({"script": "x.py"}, checkpoints={**wanted, "root": str(tmp_path / "no")})["checkpoints"][
        "error"
    ]


def test_ages_come_from_start_ticks_and_the_kernel_s_clock_agrees_with_file_dates(
    here: Path, start: Start
) -> None:
    child = start([sys.executable, here.name])
    before = time.time()
    reply = probe.serve({"runs": {"it": {"process": {"script": here.name}}}})
    clock = reply["clock"]
    assert clock["sane"]
    assert before - 1 <= clock["kernel"] <= time.time() + 1
    age = (clock["now_ticks"] - reply["runs"]["it"]["processes"][0]["start_ticks"]) / clock["hz"]
    assert 0 <= age < 200
    assert reply["host"]["init_start_ticks"] == processes.read_process(1)["start_ticks"]
    assert child.poll() is None


def test_a_shifted_boot_clock_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "clock_gettime", lambda _: 5e8)
    clock = probe.serve({"runs": {}})["clock"]
    assert clock["sane"] is False
    assert clock["now_ticks"] == processes.read_process(os.getpid())["start_ticks"]


def test_an_nvidia_smi_that_hangs_costs_its_limit_and_is_a_fact(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(probe, "GPU_SECONDS", 0.2)
    request = {"runs": {"it": {"process": {"script": "x.py"}, "gpus": [0]}}}
    assert "no answer" in probe.serve(request)["gpus"]["state"]
    monkeypatch.setattr(probe, "GPU_SECONDS", 100)
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho '0, RTX PRO 6000, 97, 90000, 97887, 71'\n")
    assert probe.serve(request)["gpus"]["each"][0]["use"] == "97"


def test_it_runs_on_python_3_8_as_a_script(here: Path, start: Start) -> None:
    places = [
        *map(str, Path.home().glob(".pyenv/versions/3.8.*/bin/python")),
        shutil.which("python3.8") or "",
    ]
    old = next(
        (place for place in places if place and not subprocess.run([place, "-V"], check=False).returncode),
        None,
    )
    if old is None:
        pytest.skip("there is no Python 3.8 here")
    child = start([sys.executable, here.name])
    request = json.dumps({"runs": {"it": {"process": {"script": here.name}}}}).encode()
    done = subprocess.run([old, "-B", probe.__file__], input=request, capture_output=True, check=True)
    assert [one["pid"] for one in json.loads(done.stdout)["runs"]["it"]["processes"]] == [child.pid]


@pytest.mark.report("b11")
def test_looking_leaves_nothing_behind_and_touches_nothing(here: Path, start: Start, tmp_path: Path) -> None:
    start([sys.executable, here.name])
    (tmp_path / "step_1").mkdir()
    (tmp_path / "step_1" / "checkpoint.pt").write_bytes(b"x")

    def state() -> list[tuple[str, int, int, int]]:
        looks = [(str(path), path.stat()) for path in sorted(tmp_path.rglob("*"))]
        return [(name, look.st_mtime_ns, look.st_size, look.st_atime_ns) for name, look in looks]

    before, descriptors = state(), len(os.listdir("/proc/self/fd"))
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    checkpoints = {"root": str(tmp_path), "pattern": "step_{step}/checkpoint.pt", "marker": None}
    ask({"script": here.name}, log={"path": str(tmp_path / "log")}, checkpoints=checkpoints)
    assert state() == before
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert Path(f"/proc/self/task/{os.getpid()}/children").read_text() == children


@pytest.fixture
def stranger() -> Iterator[Callable[..., dict[str, Any]]]:
    """Ask the probe as a user without any right, on a table that hides others' processes or does not."""
    if os.geteuid() != 0 or not Path("/usr/bin/python3").exists():
        pytest.skip("needs root, and a python that others may run")
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    shutil.copytree(
        Path(probe.__file__).parent, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)

    def ask(process: dict[str, Any], hidepid: int, *, root: bool = False) -> dict[str, Any]:
        user = [] if root else ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        mount = 'mount -t proc -o "hidepid=$0" proc /proc && exec "$@"'
        argv = [
            "unshare",
            "-m",
            "sh",
            "-c",
            mount,
            str(hidepid),
            *user,
            "/usr/bin/python3",
            "-B",
            str(folder / "probe.py"),
        ]
        request = json.dumps({"runs": {"it": {"process": process}}}).encode()
        done = subprocess.run(argv, input=request, capture_output=True, check=True, cwd="/")
        reply: dict[str, Any] = json.loads(done.stdout)
        return reply

    yield ask
    shutil.rmtree(folder)


@pytest.mark.parametrize("hidepid", [1, 2])
def test_hidden_processes_are_noticed_by_a_user_without_rights_and_seen_by_root(
    stranger: Any, hidepid: int
) -> None:
    seen = stranger({"script": "x.py"}, hidepid)["table"]
    assert (seen["hidden"], seen["others"], seen["init"]) == (True, 0, False)
    seen = stranger({"script": "x.py"}, hidepid, root=True)["table"]
    assert (seen["hidden"], seen["init"]) == (False, True)


def test_who_may_not_see_where_a_process_works_has_a_doubt_and_no_answer(
    stranger: Any, here: Path, start: Start
) -> None:
    child = start([sys.executable, here.name])
    for process in ({"script": str(here)}, {"script": here.name, "cwd": str(here.parent)}):
        found = stranger(process, 0)["runs"]["it"]
        assert found["processes"] == []
        assert [(one["pid"], one["doubt"]) for one in found["near"]] == [(child.pid, True)]
    found = stranger({"script": here.name}, 0)["runs"]["it"]
    assert [one["pid"] for one in found["processes"]] == [child.pid]
