"""Every command keeps the same promises: exit codes, one JSON document, one line for an error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

PRELUDE = """
import sys
from hostkit.program import run
from hostkit.errors import *
from hostkit.tasks.command import Outcome, command

@command("look", help={"what": "what to look at", "number": "how many"}, positional=("what",), examples=("look",),
         acts=True)
def look(session, what="nothing", number=1):
    '''Look at something.'''
    session.say("looking")
    if what == "pipe": raise BrokenPipeError(32, "Broken pipe")
    if what == "fault": raise ZeroDivisionError("by zero")
    if what == "gone": raise UnreachableError("no answer \\x1b[31m", hop="pve", hops_reached=("ct129",), hint="ping it")
    if what == "config": raise ConfigError("2 faults", where="fleet.yaml", faults=("line 1: a", "line 2: b"))
    if what == "interrupt": raise KeyboardInterrupt
    return Outcome({"schema": "x/1", "what": what}, exit=2 if what == "bad" else 0,
                   render=lambda console: console.print("seen: [red]" + what))

sys.exit(run(sys.argv[1:], {"look": look}))
"""


def run(*argv: str | bytes, stdin=subprocess.DEVNULL, **more):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PRELUDE), *argv],
        stdin=stdin,
        capture_output=True,
        timeout=60,
        **more,
    )


def test_a_person_gets_the_text_on_stdout_and_progress_on_stderr():
    done = run("look")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"seen: [red]nothing\n", b"looking\n")


def test_a_program_gets_one_document_on_stdout():
    done = run("look", "--json", "--what", "bad")
    assert done.returncode == 2
    assert json.loads(done.stdout) == {"schema": "x/1", "what": "bad"}


def test_quiet_is_silent_when_all_is_well_and_speaks_when_not():
    assert run("look", "--quiet").stdout + run("look", "--quiet").stderr == b""
    assert b"bad" in run("look", "--quiet", "--what", "bad").stdout


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["look", "--what", "gone"], 69),
        (["look", "--what", "config"], 78),
        (["look", "--what", "fault"], 70),
        (["look", "--what", "interrupt"], 130),
        (["look", "--no-such-flag"], 64),
        (["no-such-command"], 64),
        (["look", "--inventory", ""], 64),
        (["look", "--timeout", "soon"], 64),
        (["look", "--timeout", "0"], 64),
        (["look", "--number", "x"], 64),
        (["look", "--number", "9" * 5000], 64),
        (["look", "--number", "\x1b[31m"], 64),
    ],
)
def test_each_kind_of_error_has_its_exit_code_and_shows_no_traceback(argv, code):
    done = run(*argv)
    assert done.returncode == code
    assert b"Traceback" not in done.stderr
    assert done.stderr.strip()
    assert done.stdout == b""


def test_an_error_for_a_program_is_a_document_that_names_the_hop_and_what_stood():
    done = run("look", "--json", "--what", "gone")
    error = json.loads(done.stdout)
    assert error["schema"] == "hostkit.error/1"
    assert (error["hop"], error["stood"], error["hint"], error["exit"]) == ("pve", ["ct129"], "ping it", 69)


def test_control_characters_that_an_error_quotes_do_not_reach_the_terminal():
    assert b"\x1b" not in run("look", "--what", "gone").stderr


def test_every_fault_of_a_file_is_shown():
    shown = run("look", "--what", "config").stderr
    assert b"line 1: a" in shown and b"line 2: b" in shown


def test_debug_shows_where_a_fault_came_from_and_changes_neither_exit_code_nor_document():
    done = run("look", "--what", "fault", "--debug", "--json")
    assert b"ZeroDivisionError" in done.stderr and b"Traceback" in done.stderr
    assert (done.returncode, json.loads(done.stdout)["exit"]) == (70, 70)


def test_a_broken_pipe_within_a_command_is_an_internal_error():
    done = run("look", "pipe")
    assert (done.returncode, done.stdout) == (70, b"")
    assert b"BrokenPipeError" in done.stderr and b"please report it" in done.stderr


@pytest.mark.report("h9")
@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_standard_streams_do_no_harm(closed):
    done = run("look", preexec_fn=lambda: [os.close(number) for number in closed])
    assert done.returncode == 0


@pytest.mark.report("e9")
def test_an_ascii_locale_replaces_characters_and_keeps_the_exit_code():
    done = run("look", "--what", "▏ü", env=os.environ | {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert b"seen" in done.stdout


def test_a_document_is_json_in_a_locale_that_lacks_its_characters():
    done = run(
        "look",
        "--json",
        "--what",
        "▏ü🚂\udcff",
        env=os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "1"},
    )
    assert json.loads(done.stdout)["what"] == "▏ü🚂\udcff"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this machine")
@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_full_disk_under_stdout_is_one_line_and_an_exit_code_of_its_own(flags):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(PRELUDE), "look", *flags],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    assert done.returncode == 73
    assert (
        b"No space left" in done.stderr or flags
    )  # with --json, the error's document was for stdout as well
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this machine")
@pytest.mark.parametrize("redirected", [">&-", ">/dev/full", "2>&-", "2>/dev/full", "| true"])
@pytest.mark.parametrize(
    ("words", "code"), [("nope", 64), ("-j nope", 64), ("look config", 78), ("look config -j", 78)]
)
def test_an_error_keeps_its_exit_code_where_nobody_can_read_it(words, code, redirected):
    line = f'set -o pipefail; "$0" -c "$1" {words} {redirected}'
    argv = ["bash", "-c", line, sys.executable, textwrap.dedent(PRELUDE)]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    assert (done.returncode, b"Traceback" in done.stderr) == (code, False)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this machine")
def test_a_help_text_for_a_full_disk_is_one_line_and_an_exit_code():
    argv = [sys.executable, "-c", textwrap.dedent(PRELUDE), "--help"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert (done.returncode, done.stderr.count(b"\n")) == (73, 1)


def test_an_interrupt_while_python_still_imports_is_one_too():
    code = """
import sys
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("hostkit.tasks"):
            raise KeyboardInterrupt
sys.meta_path.insert(0, Stop())
from hostkit.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, b"")


def test_an_interrupt_that_an_import_turns_into_another_error_is_one_all_the_same():
    code = """
import os, signal, sys
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("hostkit.tasks"):
            try:
                os.kill(os.getpid(), signal.SIGINT)
                signal.pause()
            except KeyboardInterrupt:
                raise BaseException("a compiled module cannot be imported") from None
sys.meta_path.insert(0, Stop())
from hostkit.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, b"")


def test_a_reader_that_goes_away_is_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(PRELUDE), "look"],
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"looking\n")


@pytest.mark.parametrize("argv", [["--list"], ["look", "--help"], ["--help"]])
def test_a_reader_of_a_help_text_that_goes_away_is_no_error(argv):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        code = textwrap.dedent(PRELUDE)
        done = subprocess.run(
            [sys.executable, "-c", code, *argv], stdout=writing, stderr=subprocess.PIPE, timeout=60
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["look", "--number", "x"], "--number: 'x' is not a whole number"),
        (["look", "--what"], "--what: expected one argument"),
        (["look", "a", "b"], "unexpected argument 'b'"),
        (["look", "--waht", "x"], "look has no flag --waht (did you mean --what?)"),
        (["look", "--yes"], "look has no flag --yes (no command asks before it acts"),
        (["--json-lines", "look"], "look has no flag --json-lines"),
        (["--quiet"], "no command, only --quiet"),
    ],
)
def test_a_wrong_command_line_is_told_in_the_words_of_hostkit(argv, message):
    done = run(*argv)
    assert (done.returncode, done.stdout) == (64, b"")
    assert message in done.stderr.decode()
    for foreign in ("invalid literal", "Argument:", "core-opts", "usage:"):
        assert foreign not in done.stderr.decode()


@pytest.mark.parametrize(
    "argv",
    [
        ["look", "bad", "--json"],
        ["--json", "look", "bad"],
        ["-j", "look", "--what", "bad"],
        ["--timeout", "30s", "look", "-j", "bad"],
        ["-qjt", "30s", "look", "bad"],
        ["--inventory=none.yaml", "-n", "look", "bad", "-j"],
    ],
)
def test_shared_flags_may_stand_before_the_command_and_the_main_word_needs_no_flag(argv):
    done = run(*argv)
    assert (done.returncode, json.loads(done.stdout)["what"]) == (2, "bad")


def test_invokes_own_dry_run_is_refused_since_no_command_would_heed_it():
    done = run("--dry", "look")
    assert done.returncode == 64
    assert b"--dry-run" in done.stderr


def test_flags_are_explained():
    shown = run("--help", "look").stdout.decode()
    assert shown == run("look", "--help").stdout.decode()
    assert shown.startswith("Usage: hostkit look [WHAT] [FLAGS]\n")
    assert shown.endswith("Examples:\n  hostkit look\n")
    for foreign in ("Docstring", "core-opts", "other tasks here"):
        assert foreign not in shown
    assert "--dry-run" in shown and "what to look at" in shown and "Look at something." in shown


def test_listing_commands_imports_nothing_heavy():
    code = (
        "import sys; from hostkit.program import run; from hostkit.tasks.catalogue import commands;"
        "run(['--list'], commands); print(sorted(sys.modules))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, timeout=60
    ).stdout.decode()
    for heavy in ("invoke", "yaml", "asyncio", "fabric", "paramiko", "pydantic", "rich", "torch", "asyncssh"):
        assert f"'{heavy}'" not in loaded


def test_a_command_line_that_is_wrong_is_a_document_too_where_one_is_asked_for():
    done = run("look", "--json", b"--bogus\xff")
    document = json.loads(done.stdout)
    assert (done.returncode, document["schema"], document["exit"]) == (64, "hostkit.error/1", 64)
    assert "--bogus" in document["what"]
    assert done.stderr == b""


def test_a_command_that_is_mistyped_is_answered_with_the_one_that_was_meant():
    done = run("lok")
    assert (done.returncode, done.stdout) == (64, b"")
    assert b"did you mean look?" in done.stderr


def test_the_help_offers_none_of_the_flags_that_would_do_nothing():
    text = run("--help").stdout.decode()
    assert "--version" in text and "look" in text
    for flag in (
        "--dry",
        "--echo",
        "--command-timeout",
        "--warn-only",
        "--prompt-for-sudo-password",
        "--config",
    ):
        assert flag not in text
