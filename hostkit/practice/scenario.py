"""The guided tour: status, evaluation, status again, by the commands a user would type, with proof at the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import hostkit
from hostkit.errors import HostkitError
from hostkit.practice.root import MARK, Root


class TourOutput(Protocol):
    """Whoever explains the tour to the person watching."""

    def heading(self, text: str) -> None: ...

    def say(self, text: str) -> None: ...

    def command(self, words: list[str]) -> None: ...

    def check(self, what: str, passed: bool, found: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must be true for the tour to have worked, and what was found."""

    what: str
    passed: bool
    found: str


class Laptop:
    """Where the commands are typed: runs `hostkit` as a program of its own, in the fleet's environment."""

    def __init__(self, root: Root, *, output: int | IO[Any] | None = None, quiet: bool = False) -> None:
        self._root = root
        self._output = subprocess.DEVNULL if quiet else output
        self._quiet = quiet
        self._environment = laptop_environment(root)

    def run(self, *words: str) -> int:
        """Run a command with its output shown as it comes, and return its exit code."""
        child = self._start((*words, "--quiet") if self._quiet else words, self._output)
        try:
            return child.wait()
        except BaseException:
            _leave(child)
            raise

    def ask(self, *words: str) -> dict[str, Any]:
        """Run a command with --json, and return its document."""
        child = self._start((*words, "--json", "--quiet"), subprocess.PIPE)
        try:
            out, _ = child.communicate()
        except BaseException:
            _leave(child)
            raise
        try:
            document = json.loads(out)
        except ValueError:
            raise HostkitError(
                f"hostkit {words[0]} --json printed no document, and exited with {child.returncode}",
                where="practice",
            ) from None
        if not isinstance(document, dict):
            raise HostkitError(
                f"hostkit {words[0]} --json printed something else than an object", where="practice"
            )
        return document

    def _start(self, words: tuple[str, ...], output: int | IO[Any] | None) -> subprocess.Popen[bytes]:
        program = [sys.executable, "-P", "-c", "from hostkit.cli import main; main()"]
        return subprocess.Popen(
            [*program, *words, "--inventory", str(self._root.inventory)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            env=self._environment,
        )


def laptop_environment(root: Root) -> dict[str, str]:
    """Return the environment of the tour's commands: the user's, but hostkit's own files go into the root."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HOSTKIT_")}
    package = str(Path(hostkit.__file__).parent.parent)
    path = os.pathsep.join([package, *filter(None, [environment.get("PYTHONPATH")])])
    return environment | root.laptop_environment() | {"PYTHONPATH": path, MARK: str(root.path)}


def _leave(child: subprocess.Popen[bytes]) -> None:
    """End a command that is not waited for any more: it heard Ctrl-C too, and may want to say goodbye."""
    try:
        child.wait(5)
    except subprocess.TimeoutExpired:
        child.terminate()
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def tour(root: Root, narrator: TourOutput, laptop: Laptop) -> list[Check]:
    """Show the two headline commands on the live training, and return what must hold with what was found."""
    checks: list[Check] = []

    def check(what: str, passed: bool, found: str) -> None:
        checks.append(Check(what, passed, found))
        narrator.check(what, passed, found)

    narrator.heading("1. Is the training alive, and is it getting anywhere?")
    narrator.say(
        "The training runs on ct200, a container on pve. The only way in is ct129: hostkit logs in there, has "
        "ct129's own ssh log in to pve, and enters the container with `pct exec`. One round trip; nothing is "
        "left behind."
    )
    narrator.command(["hostkit", "train-status", "--inventory", str(root.inventory)])
    status = laptop.run("train-status")
    before = laptop.ask("train-status")
    check(
        "the training is RUNNING",
        status == 0 and before.get("verdict") == "RUNNING",
        _verdict(before, status),
    )

    narrator.heading("2. How good is its newest checkpoint?")
    narrator.say(
        "hostkit finds the newest complete checkpoint of the live run, checks that the harness can load it, "
        "copies it from ct200 to ct129, evaluates it there on the CPU beside the training without getting in "
        "its way, and files the result on this machine."
    )
    narrator.command(["hostkit", "eval-latest", "--inventory", str(root.inventory)])
    evaluation = laptop.run("eval-latest")
    result = newest_result(root)
    check("the evaluation worked", evaluation == 0, f"exit code {evaluation}")
    check("a result with accept_len is in the archive", _accept_len(result) is not None, _figure(result))

    narrator.say(
        "accept_len is how many tokens in a row, of those that the drafter proposes, the target would have "
        "written itself. This target is a few seconds old and repeats itself, so the figure proves that the "
        "parts work together, not that the drafter is any good."
    )

    narrator.heading("3. Has that disturbed the training?")
    narrator.say(
        "The same question again: it must be the same process (boot, pid, start time), and it must have moved on."
    )
    narrator.command(["hostkit", "train-status", "--inventory", str(root.inventory)])
    status = laptop.run("train-status")
    after = laptop.ask("train-status")
    check(
        "the training is still RUNNING",
        status == 0 and after.get("verdict") == "RUNNING",
        _verdict(after, status),
    )
    same = _identity(before) is not None and _identity(before) == _identity(after)
    check("it is the same process", same, f"{_process(before)}, then {_process(after)}")
    first, last = _step(before), _step(after)
    check(
        "it has gone on stepping",
        first is not None and last is not None and last > first,
        f"step {first}, then {last}",
    )
    return checks


def document(root: Root, checks: list[Check], *, kept: bool) -> dict[str, Any]:
    """Return the tour's `hostkit.practice/1` document."""
    return {
        "schema": "hostkit.practice/1",
        "root": str(root.path),
        "inventory": str(root.inventory),
        "kept": kept,
        "passed": all(check.passed for check in checks),
        "checks": [asdict(check) for check in checks],
    }


def newest_result(root: Root) -> dict[str, Any] | None:
    """Return the result that was filed last in the fleet's archive."""
    newest = max(root.archive.glob("*/*/result.json"), key=lambda path: path.stat().st_mtime_ns, default=None)
    if newest is None:
        return None
    result = json.loads(newest.read_bytes())
    return result if isinstance(result, dict) else None


def _accept_len(result: dict[str, Any] | None) -> float | None:
    metrics = (result or {}).get("metrics") or {}
    mean = (metrics.get("accept_len") or {}).get("mean")
    return float(mean) if isinstance(mean, int | float) else None


def _figure(result: dict[str, Any] | None) -> str:
    if result is None:
        return "no result"
    figure, step = _accept_len(result), (result.get("checkpoint") or {}).get("step")
    return (
        f"accept_len {figure:.2f} at step {step}" if figure is not None else f"no accept_len at step {step}"
    )


def _verdict(status: dict[str, Any], code: int) -> str:
    return f"{status.get('verdict') or status.get('what') or 'no verdict'}, exit code {code}"


def _identity(status: dict[str, Any]) -> dict[str, Any] | None:
    processes = status.get("processes") or []
    return processes[0].get("identity") if len(processes) == 1 else None


def _process(status: dict[str, Any]) -> str:
    who = _identity(status)
    return f"pid {who.get('pid')} started at tick {who.get('start_ticks')}" if who else "no one process"


def _step(status: dict[str, Any]) -> int | None:
    live = (status.get("step") or {}).get("live")
    return int(live) if isinstance(live, int) else None
