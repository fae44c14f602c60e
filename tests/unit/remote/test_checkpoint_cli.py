"""checkpoint_cli.py as a stranger runs it: one line of JSON, a code, a status, and no half a file, whatever happens."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import checkpoint_reader
from tests.unit.remote.subset.test_torch_layout import PROGRAM, save


def old_python() -> str | None:
    """Return the oldest Python that hosts may have, where this machine has one."""
    beside = sorted(Path("~/.pyenv/versions").expanduser().glob("3.8.*/bin/python"))
    return str(beside[0]) if beside else shutil.which("python3.8")


PYTHONS = [sys.executable, *([old_python()] if old_python() else [])]


def run(*words: object, python: str = sys.executable, **more: Any) -> subprocess.CompletedProcess[bytes]:
    argv = [python, "-S", str(PROGRAM), *map(str, words)]
    return subprocess.run(argv, capture_output=True, check=False, timeout=60, **more)


def told(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    """Return the one document that it printed, on the stream where it belongs."""
    text = done.stderr if "stream" in done.args else done.stdout
    assert text.count(b"\n") == 1, (done.stdout[-500:], done.stderr[-2000:])
    assert b"Traceback" not in done.stderr
    reply: dict[str, Any] = json.loads(text)
    return reply


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("by-hand") / "c.pt")


@pytest.mark.parametrize("python", PYTHONS)
def test_every_word_of_it_works_on_the_oldest_python_too(saved: Path, tmp_path: Path, python: str) -> None:
    import torch

    out = tmp_path / "out.pt"
    for op in ("look", "check", "inspect", "plan"):
        done = run(op, saved, python=python)
        assert (done.returncode, done.stderr) == (0, b"")
        assert told(done).get("code") is None
    done = run("copy", saved, out, "--keys", "drafter,step", python=python)
    assert (done.returncode, told(done)["kept"]) == (0, ["drafter", "step"])
    assert torch.load(out, weights_only=True)["step"] == 4000
    done = run("stream", saved, "--keys", "drafter,step", "--from", 7, python=python)
    assert (done.returncode, told(done)["code"], done.stdout) == (0, None, out.read_bytes()[7:])


def folder(tmp_path: Path) -> Path:
    (tmp_path / "d").mkdir()
    return tmp_path / "d"


REFUSALS: dict[str, tuple[list[str], int, str]] = {
    "no words": ([], 64, "usage"),
    "an unknown word": (["chekc", "{saved}"], 64, "usage"),
    "copy without a target": (["copy", "{saved}"], 64, "usage"),
    "check with a target": (["check", "{saved}", "{out}"], 64, "usage"),
    "a rate of nothing": (["copy", "{saved}", "{out}", "--rate", "0"], 64, "usage"),
    "a byte that is no number": (["stream", "{saved}", "--from", "x"], 64, "usage"),
    "no such file": (["check", "{none}"], 1, "incomplete"),
    "no such file to plan": (["plan", "{none}", "--keys", "a"], 1, "incomplete"),
    "no such file to stream": (["stream", "{none}", "--keys", "a"], 1, "incomplete"),
    "no such file to copy": (["copy", "{none}", "{out}", "--keys", "a"], 1, "vanished"),
    "a folder to check": (["check", "{folder}"], 1, "incomplete"),
    "a folder to copy": (["copy", "{folder}", "{out}", "--keys", "a"], 1, "incomplete"),
    "keys that match nothing": (["plan", "{saved}", "--keys", "nothing,at all"], 1, "missing-key"),
    "no key at all": (["plan", "{saved}", "--keys", ""], 1, "missing-key"),
    "a byte beyond the end": (["stream", "{saved}", "--from", "99999999999"], 1, "range"),
    "a byte before the beginning": (["stream", "{saved}", "--from", "-1"], 1, "range"),
    "a folder that is not there": (["copy", "{saved}", "{none}/out.pt"], 1, "target"),
    "a folder for a target": (["copy", "{saved}", "{folder}"], 1, "target"),
    "a device for a target": (["copy", "{saved}", "/dev/null"], 1, "target"),
    "the source for a target": (["copy", "{saved}", "{saved}"], 1, "target"),
    "a link to the source for a target": (["copy", "{saved}", "{link}"], 1, "target"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_every_refusal_is_one_line_with_a_code_and_a_status(saved: Path, tmp_path: Path, name: str) -> None:
    words, status, code = REFUSALS[name]
    (tmp_path / "link.pt").symlink_to(saved)
    places = {
        "saved": saved,
        "out": tmp_path / "out.pt",
        "none": tmp_path / "none",
        "link": tmp_path / "link.pt",
    }
    before = saved.read_bytes()
    done = run(*[word.format(folder=tmp_path, **places) for word in words])
    reply = told(done)
    assert (done.returncode, reply["code"]) == (status, code), reply
    assert reply["reason"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.pt"]
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["c.pt"]
    assert Path("/dev/null").is_char_device()


@pytest.mark.skipif(os.getuid() != 0, reason="takes root to become somebody else")
def test_without_permission_it_says_so(saved: Path, tmp_path: Path) -> None:
    def nobody() -> None:
        os.setgroups([])
        os.setuid(65534)

    program = tmp_path / "program"
    shutil.copytree(PROGRAM.parent, program, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    for above in (tmp_path, *tmp_path.parents):
        if str(above).startswith("/tmp/"):
            above.chmod(0o755)
    mine = tmp_path / "c.pt"
    shutil.copy(saved, mine)
    os.utime(mine, (1, 1))
    for mode, words, code in (
        (0o600, ["check", mine], "incomplete"),
        (0o600, ["plan", mine, "--keys", "drafter"], "incomplete"),
        (0o644, ["copy", mine, tmp_path / "out.pt", "--keys", "drafter"], "write"),
        (0o644, ["check", mine], None),
    ):
        mine.chmod(mode)
        argv = ["/usr/bin/python3", "-S", str(program / "checkpoint_cli.py"), *map(str, words)]
        done = subprocess.run(argv, capture_output=True, check=False, preexec_fn=nobody)
        reply = told(done)
        assert (reply["code"], done.returncode) == (code, int(code is not None))
        assert code is None or "ermission denied" in reply["reason"]


def test_when_nobody_reads_it_ends_quietly_and_says_so(saved: Path) -> None:
    words = [sys.executable, "-S", str(PROGRAM), "stream", str(saved), "--keys", "drafter,optimizer,rng"]
    gone = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert gone.stdout is not None
    assert gone.stderr is not None
    gone.stdout.read(10)
    gone.stdout.close()
    said = gone.stderr.read()
    gone.stderr.close()
    assert (gone.wait(20), json.loads(said)["code"], said.count(b"\n")) == (1, "closed", 1)
    for op in ("check", "plan"):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(
            [sys.executable, "-S", PROGRAM, op, saved], stdout=writer, stderr=subprocess.PIPE, check=False
        )
        os.close(writer)
        assert (done.returncode, done.stderr) == (1, b"")


def test_with_its_outputs_closed_it_writes_into_no_file(saved: Path, tmp_path: Path) -> None:
    before, out = saved.read_bytes(), tmp_path / "out.pt"
    for word, more, status in (("check", "", 0), ("stream", "--keys drafter", 1), ("copy", str(out), 0)):
        shell = f'"$0" -S "$1" {word} "$2" {more} <&- >&- 2>&-'
        done = subprocess.run(["sh", "-c", shell, sys.executable, PROGRAM, saved], check=False)
        assert done.returncode == status
    assert saved.read_bytes() == before
    assert checkpoint_reader.check(str(out))["code"] is None


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_midway_leaves_a_part_that_the_next_goes_on_with(
    saved: Path, tmp_path: Path, number: signal.Signals, python: str
) -> None:
    out = tmp_path / "out.pt"
    words = [python, "-S", str(PROGRAM), "copy", str(saved), str(out), "--keys", "drafter", "--rate", "60000"]
    going = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    part, end = tmp_path / "out.pt.part", time.monotonic() + 30
    while not (part.exists() and part.stat().st_size > 100_000):
        assert time.monotonic() < end, "it wrote nothing"
        time.sleep(0.01)
    going.send_signal(number)
    said, error = going.communicate(timeout=20)
    if number == signal.SIGKILL:
        assert (going.returncode, said) == (-number, b"")
    else:
        assert (going.returncode, json.loads(said)["code"], error) == (128 + number, "interrupted", b"")
    assert not out.exists()
    size = part.stat().st_size
    done = run("copy", saved, out, "--keys", "drafter")
    reply = told(done)
    assert (done.returncode, reply["resumed_at"]) == (0, size)
    assert reply["read"] <= reply["size"] - size + (1 << 20)
    assert not part.exists()
    whole = tmp_path / "whole.pt"
    assert run("copy", saved, whole, "--keys", "drafter").returncode == 0
    assert out.read_bytes() == whole.read_bytes()


def test_two_at_once_do_not_write_into_each_other(saved: Path, tmp_path: Path) -> None:
    out, part = tmp_path / "out.pt", tmp_path / "out.pt.part"
    words = [
        sys.executable,
        "-S",
        str(PROGRAM),
        "copy",
        str(saved),
        str(out),
        "--keys",
        "drafter",
        "--rate",
        "60000",
    ]
    going = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    end = time.monotonic() + 30
    while not (part.exists() and part.stat().st_size):
        assert time.monotonic() < end, "it wrote nothing"
        time.sleep(0.01)
    done = run("copy", saved, out, "--keys", "drafter")
    assert (done.returncode, told(done)["code"]) == (1, "busy")
    going.terminate()
    going.wait(20)
    assert part.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="takes root to mount")
def test_a_disk_that_fills_up_is_said_and_the_part_goes_on_when_there_is_room(
    saved: Path, tmp_path: Path
) -> None:
    inside = (
        "mount -t tmpfs -o size=200k none {0} && head -c 60000 /dev/zero > {0}/ballast\n"
        "{1} copy {2} {0}/out.pt --keys drafter; echo $?; ls {0}\n"  # before a byte
        # a library that lies about the room, as a quota does
        "{1} copy {2} {0}/out.pt --keys drafter {3}; echo $?; ls -A {0}\n"
        "rm {0}/ballast; mount -o remount,size=10m {0}; {1} copy {2} {0}/out.pt --keys drafter; echo $?; ls {0}"
    )
    lies = tmp_path / "lies.py"
    lies.write_text(
        "import os, sys\nsys.path.insert(0, sys.argv.pop(1))\nplain = os.statvfs\n"
        "os.statvfs = lambda path: os.statvfs_result(list(plain(path))[:4] + [1 << 40] + list(plain(path))[5:])\n"
        "import checkpoint_cli\nsys.exit(checkpoint_cli.main(sys.argv[1:]))\n"
    )
    place = tmp_path / "small"
    place.mkdir()
    honest = f"{sys.executable} -S {PROGRAM}"
    liar = f"{sys.executable} -S {lies} {PROGRAM.parent}"
    text = inside.format(place, honest, saved, "")
    lines = text.split("\n")
    lines[2] = lines[2].replace(honest, liar)
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    if "mount" in done.stderr:
        pytest.skip("no mount namespaces here")
    said = done.stdout.split("\n")
    first, second, third = [json.loads(line) for line in said if line.startswith("{")]
    assert (first["code"], second["code"], third["code"]) == ("space", "space", None)
    assert "free" in first["reason"]
    assert third["resumed_at"] > 50_000
    assert [line for line in said if line and not line.startswith("{")] == [
        *("1", "ballast"),
        *("1", "ballast", "out.pt.part"),
        *("0", "out.pt"),
    ]


def test_names_with_anything_in_them_are_only_names(saved: Path, tmp_path: Path) -> None:
    odd = tmp_path / "-my run (v2) `touch canary` $(id);\n\u00fc"
    odd.mkdir()
    source = Path(shutil.copy(saved, os.fsencode(odd / "c.pt") + b"\xff" and odd / "c\udcff.pt"))
    done = run("copy", "--keys", "drafter", "--", source, odd / "out.pt", cwd=tmp_path)
    assert (done.returncode, told(done)["code"]) == (0, None)
    assert sorted(path.name for path in tmp_path.rglob("*")) == sorted([odd.name, source.name, "out.pt"])
