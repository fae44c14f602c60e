"""A remote program travels whole, answers once, and every way in which it cannot is told apart."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostkit.errors import DataError, LostError, ProtocolError, RemoteTimeoutError
from hostkit.inventory.models import Inventory
from hostkit.transport.base import Completed, Transport
from hostkit.transport.connections import Connections
from hostkit.transport.fake import FakeTransport
from hostkit.transport.programs import run
from hostkit.transport.programs.run import LOADER, run_program

MAIN = """
# a comment that stays at home
import os, sys
import sibling

def serve(request):
    do = request["do"]
    if do == "echo":
        print("noise on stdout")
        os.write(1, b"more noise")
        rest = sys.stdin.buffer.read()
        return {"request": request, "rest": len(rest), "sibling": sibling.NAME, "argv": sys.argv,
                "isolated": sys.flags.isolated, "own": len(__source__), "files": os.listdir(".")}
    if do == "raise":
        raise ValueError("it's broken")
    if do == "exit":
        sys.exit(3)
    if do == "vanish":
        os._exit(4)
    if do == "list":
        return [1]
    if do == "sleep":
        import time
        time.sleep(60)
    if do == "fork":
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.execvp("sleep", ["sleep", "30"])
        return {"pid": pid}
"""


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of remote programs that stands for hostkit's own."""
    folder = tmp_path / "package"
    (folder / "remote").mkdir(parents=True)
    (folder / "remote" / "trial.py").write_text(MAIN)
    (folder / "remote" / "sibling.py").write_text("NAME = 'ü sibling'\n")
    monkeypatch.setattr(run, "_REMOTE", folder / "remote")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for cached in (run._bundle, run._text):
        cached.cache_clear()
    yield folder
    for cached in (run._bundle, run._text):
        cached.cache_clear()


@pytest.fixture
def here() -> Iterator[Transport]:
    inventory = Inventory.model_validate({"hostkit": 1, "archive": "/a", "hosts": {"me": {"local": True}}})
    with Connections(inventory) as connections:
        yield connections.transport("me")


def pythons() -> list[str]:
    found = [sys.executable, *(f"/root/.pyenv/versions/{v}/bin/python" for v in ("3.8.18", "3.13.0"))]
    return [path for path in found if os.access(path, os.X_OK)]


@pytest.mark.parametrize("python", pythons())
def test_a_program_gets_its_request_its_siblings_and_the_rest_of_stdin(
    remote: Path, here: Transport, python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    request = {"do": "echo", "text": "ü\u2028\n\0", "n": [1, 2.5, None]}
    said = run_program(here, python, "trial", request, stdin=b"\0\xff" * 1_000_000, timeout=30)
    assert said["request"] == request
    assert said["rest"] == 2_000_000
    assert said["sibling"] == "ü sibling"
    assert said["isolated"] == 1
    assert said["own"] == len(MAIN)
    assert said["files"] == [], "nothing is written on the host"


def test_nothing_of_the_request_or_the_program_stands_in_an_argv(remote: Path) -> None:
    seen: list[list[str]] = []

    def answer(argv: list[str], stdin: bytes) -> Completed:
        seen.append(argv)
        return Completed(tuple(argv), 0, b'{"reply": {}}', b"")

    run_program(FakeTransport("a", answer), "python3", "trial", {"do": "train_dflash_pipeline.py"})
    assert seen == [["python3", "-I", "-S", "-B", "-c", LOADER]]
    assert len(LOADER) < 400


@pytest.mark.parametrize(
    ("do", "error", "says"),
    [
        ("raise", DataError, "ValueError: it's broken"),
        ("exit", DataError, "SystemExit: 3"),
        ("vanish", ProtocolError, "exit 4"),
        ("list", ProtocolError, "something else"),
        ("none", ProtocolError, "something else"),
    ],
)
def test_a_program_that_fails_says_how_and_where(
    remote: Path, here: Transport, do: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says) as caught:
        run_program(here, sys.executable, "trial", {"do": do}, timeout=20)
    assert str(caught.value).startswith("me: ")


def test_an_interpreter_that_floods_us_is_cut_off(
    remote: Path, here: Transport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec yes xxx\n")
    python.chmod(0o755)
    monkeypatch.setattr(run, "MAX_REPLY", 8 << 20)
    with pytest.raises(ProtocolError, match="exceeded 8 MiB"):
        run_program(here, str(python), "trial", {}, timeout=20)


@pytest.mark.parametrize(
    ("stdout", "stderr", "said"),
    [
        (b"Welcome!\n\x1b[31mno \x07python\n", b"", "(exit 0): Welcome! no python"),
        (b"some", b"\x1b]0;title\x07what went\nwrong", "(exit 0): what went wrong"),
        (b"  ", b"", "(exit 0), and said nothing"),
    ],
)
def test_what_came_instead_of_an_answer_is_quoted_and_harmless(
    stdout: bytes, stderr: bytes, said: str
) -> None:
    transport = FakeTransport("a", lambda argv, stdin: Completed(tuple(argv), 0, stdout, stderr))
    with pytest.raises(ProtocolError) as caught:
        run_program(transport, "/opt/python", "probe", {})
    assert caught.value.what.endswith(said)
    assert "hosts.a.python" in str(caught.value.hint)


def test_a_program_that_does_not_end_is_ended(remote: Path, here: Transport) -> None:
    with pytest.raises(RemoteTimeoutError):
        run_program(here, sys.executable, "trial", {"do": "sleep"}, timeout=1)


def test_a_child_that_a_program_leaves_behind_keeps_nobody(remote: Path, here: Transport) -> None:
    pid = run_program(here, sys.executable, "trial", {"do": "fork"}, timeout=20)["pid"]
    os.kill(pid, 9)


@pytest.mark.parametrize(
    ("python", "says"),
    [
        ("/root/.pyenv/versions/2.7.18/bin/python", "8 or newer"),
        ("/root/.pyenv/versions/3.6.15/bin/python", "Python 3.6; 3.8 or newer"),
        ("/no/such/python", "no usable /no/such/python"),
        ("/etc/passwd", "no usable /etc/passwd"),
    ],
)
def test_an_interpreter_that_will_not_do_is_named_with_what_to_set(
    remote: Path, here: Transport, python: str, says: str
) -> None:
    if "pyenv" in python and not os.access(python, os.X_OK):
        pytest.skip(f"no {python} here")
    with pytest.raises(DataError, match=says) as caught:
        run_program(here, python, "trial", {"do": "echo"}, timeout=20)
    assert "hosts.me.python" in str(caught.value)


def test_an_old_interpreter_says_which_it_is() -> None:
    """The loader's first lines, told that they run in an old Python."""
    script = LOADER.replace("sys.version_info", "(3,6,9)")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, stdin=subprocess.DEVNULL)
    assert json.loads(done.stdout) == {"old": "3.6"}


@pytest.mark.parametrize(
    "stdout", [b"", b"not json", b"[1]", b'{"reply": 3}', b"{}", b'{"reply": {}', b"[" * 100_000]
)
def test_an_answer_that_is_no_document_is_unknown(remote: Path, stdout: bytes) -> None:
    transport = FakeTransport("a", lambda argv, stdin: Completed(tuple(argv), 0, stdout, b"said on stderr"))
    with pytest.raises(ProtocolError):
        run_program(transport, "python3", "trial", {})


@pytest.mark.parametrize("retry", [False, True])
def test_a_lost_connection_is_tried_once_more_only_when_that_is_safe(remote: Path, retry: bool) -> None:
    answers: list[Any] = [LostError("cut", hop="a"), Completed((), 0, b'{"reply": {"ok": 1}}', b"")]

    def answer(argv: list[str], stdin: bytes) -> Completed:
        said = answers.pop(0)
        if isinstance(said, Exception):
            raise said
        return said

    transport = FakeTransport("a", answer)
    if retry:
        assert run_program(transport, "python3", "trial", {}, retry=True) == {"ok": 1}
    else:
        with pytest.raises(LostError):
            run_program(transport, "python3", "trial", {})
        assert len(answers) == 1
    twice = FakeTransport("a", lambda argv, stdin: (_ for _ in ()).throw(LostError("cut", hop="a")))
    with pytest.raises(LostError):
        run_program(twice, "python3", "trial", {}, retry=True)
    assert len(twice.asked) == 2


REMOTE = Path(run.__file__).parents[2] / "remote"
MODULES = sorted(
    ".".join(path.relative_to(REMOTE).with_suffix("").parts).removesuffix(".__init__")
    for path in REMOTE.rglob("*.py")
)
PROGRAMS = sorted(
    path.stem
    for path in REMOTE.glob("*.py")
    if path.stem != "checkpoint_cli"  # which a person runs in its folder
)


@pytest.mark.parametrize("module", MODULES)
def test_what_travels_with_a_module_is_what_python_sees_it_import(module: str) -> None:
    source = run._text(module)
    assert source is not None
    imported: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None and not node.level, "a module that travels imports by full name"
            imported |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    with_rooms = {name.rsplit(".", dots)[0] for name in imported for dots in range(name.count(".") + 1)}
    assert run.imported(source) == with_rooms & set(MODULES)


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_starts_from_what_travels_with_it_alone(program: str, tmp_path: Path) -> None:
    code = (
        run.FINDER.format(sources=run.sources_of(program)) + f"\nimport {program}\nprint({program}.__doc__)"
    )
    argv = [sys.executable, "-I", "-S", "-B", "-"]
    done = subprocess.run(argv, input=code.encode(), capture_output=True, cwd=tmp_path, check=False)
    assert done.returncode == 0 and done.stdout, done.stderr.decode()


@pytest.mark.skipif(not shutil.which("python3"), reason="no python3")
def test_hostkits_own_programs_travel_small_enough() -> None:
    folder = Path(run.__file__).parents[2] / "remote"
    for path in folder.glob("*.py"):
        source = path.read_text()
        if "def serve(" in source:
            assert len(run._bundle(path.stem)) <= 42 * 1024, f"{path.name}: more than two TCP windows"
    # TCP sends ten segments (14 KiB) first, and twice as many after a round trip: from 14 to 42 KiB all cost the same
    assert len(run._bundle("probe", True)) <= 28 * 1024, "the second TCP window, two thirds of it left"


def test_a_failure_is_told_with_the_line_of_the_source(remote: Path, here: Transport) -> None:
    wanted = 1 + MAIN.splitlines().index('        raise ValueError("it\'s broken")')
    code, asked = run._bundle("trial"), b'{"do": "raise"}'
    data = b"%d\n%s%d\n%s" % (len(code), code, len(asked), asked)
    done = here.run([sys.executable, "-I", "-S", "-c", LOADER], stdin=data, timeout=20)
    assert f'<hostkit trial>", line {wanted}, in serve' in json.loads(done.stdout)["trace"]


@pytest.mark.parametrize(
    ("exit", "words"), [(137, "signal 9.*memory"), (143, "signal 15"), (129, "signal 1 ")]
)
def test_a_program_that_was_killed_is_not_called_a_strange_interpreter(exit: int, words: str) -> None:
    transport = FakeTransport("a", lambda argv, stdin: Completed(tuple(argv), exit, b"", b""))
    with pytest.raises(ProtocolError, match=words) as caught:
        run_program(transport, "python3", "receiver", {})
    assert "plain Python" not in str(caught.value)
