"""`practice`: a whole fleet on this machine, a real training in it, and a guided tour of the headline commands."""

from __future__ import annotations

import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from hostkit.errors import BusyError, HostkitError, Interrupted, UsageError
from hostkit.tasks.command import Outcome, Session, command

if TYPE_CHECKING:
    from rich.console import Console

    from hostkit.practice.furnish import Settings
    from hostkit.practice.root import Root
    from hostkit.report.tour import Narrator


@command(
    "practice",
    help={
        "keep": "leave the fleet up, and print commands to try on it",
        "down": "end and remove all fleets that were left up (with --inventory FILE: only that one)",
        "tour": "with --keep: only bring the fleet up, and show nothing",
    },
    examples=("practice", "practice --keep --no-tour"),
)
def practice(session: Session, keep: bool = False, down: bool = False, tour: bool = True) -> Outcome:
    """Try hostkit on a fleet of its own: SSH servers on loopback, a container, a real small training.

    Takes two to four minutes. It needs no root, contacts no other host and leaves your ssh files alone.
    Needs ssh, and what `pip install '.[practice]'` in a checkout installs.
    """
    if down:
        if keep:
            raise UsageError("--keep and --down exclude each other")
        return _down(session)
    if not tour and not keep:
        raise UsageError("--no-tour needs --keep: without it the fleet would end at once", hint="add --keep")
    return _up(session, keep=keep, tour=tour)


TASKS = [practice]


def _up(session: Session, *, keep: bool, tour: bool) -> Outcome:
    from hostkit.practice import lifecycle, requirements, scenario
    from hostkit.practice.furnish import Settings
    from hostkit.report.console import console
    from hostkit.report.tour import Narrator, tour_summary

    requirements.check()
    narrator = Narrator(console(stderr=session.json), quiet=session.quiet)
    if others := lifecycle.left_over():
        narrator.say("Fleets of this account are still up, perhaps from another session. To end one:")
        for root in others:
            narrator.say(f"  hostkit practice --down -i {root.inventory}")
    settings = Settings()
    kept = False
    with _interruptible(session.timeout):
        root = lifecycle.begin()
        try:
            _bring_up(root, settings, narrator, keep=keep)
            checks = []
            if tour:
                output = sys.stderr.fileno() if session.json else None
                laptop = scenario.Laptop(root, output=output, quiet=session.quiet)
                checks = scenario.tour(root, narrator, laptop)
            kept = keep
        finally:
            if not kept:
                with _signals_ignored():
                    _end(root, narrator)
    passed = all(check.passed for check in checks)
    document = scenario.document(root, checks, kept=kept)
    return Outcome(
        document,
        0 if passed else 1,
        lambda console: tour_summary(console, document, commands_to_try(root) if kept else []),
    )


def _bring_up(root: Root, settings: Settings, narrator: Narrator, *, keep: bool) -> None:
    """Everything before the tour, each part with what it is and how long it took."""
    from hostkit.inventory import load
    from hostkit.practice import lifecycle, training
    from hostkit.transport.connections import Connections

    narrator.heading("Bringing the practice fleet up")
    end = "stays until `hostkit practice --down`" if keep else "is removed at the end"
    narrator.say(f"All of it lies under {root.path}, and {end}. Nothing of yours is read or changed.")
    with narrator.part("SSH servers for ct129 and pve, keys, known_hosts, the inventory"):
        lifecycle.furnish_and_serve(root, settings)
    with narrator.part(
        "a tiny target model: a byte-level Qwen3, trained on Python's standard library"
    ) as part:
        training.install(root)
        training.make_target(root, settings, lambda done, of: part(f"step {done} of {of}"))
    with (
        narrator.part(
            "the live run: a DFlash drafter for it, trained on ct200 until it has saved twice"
        ) as part,
        Connections(load(root.inventory)) as connections,
    ):
        who = training.start(root, connections.transport("ct200"), training.command(root, settings))
        training.wait_for_checkpoint(
            root, who, 2 * settings.save_every, 240.0, lambda step: part(f"step {step}")
        )


def _end(root: Root, narrator: Narrator) -> None:
    from hostkit.practice import lifecycle

    ended = lifecycle.down(root)
    if ended.survivors:
        pids = ", ".join(str(who.pid) for who in ended.survivors)
        raise HostkitError(
            f"processes {pids} of the practice fleet do not end",
            where=str(root.path),
            hint="hostkit practice --down tries again",
        )
    narrator.say(f"\nThe fleet is down: {ended.processes} processes ended, {root.path} removed.")


def _down(session: Session) -> Outcome:
    """End the fleet that is named, or all that nobody is busy with: a tour in another terminal goes on."""
    from hostkit.practice import lifecycle
    from hostkit.practice.root import all_roots

    roots = all_roots()
    busy: list[Root] = []
    if session.inventory_named:
        roots = [root for root in roots if root.inventory.resolve() == session.inventory_path.resolve()]
        if not roots:
            where = str(session.inventory_path)
            raise UsageError("not the inventory of one of your practice fleets", where=where)
    else:
        busy = [root for root in roots if lifecycle.owner(root) is not None]
    ended = [lifecycle.down(root) for root in roots if root not in busy]
    survivors = [str(who.pid) for one in ended for who in one.survivors]
    if survivors:
        raise HostkitError(
            f"processes {', '.join(survivors)} do not end",
            where="practice",
            hint="see ps for what they wait for",
        )
    document: dict[str, Any] = {
        "schema": "hostkit.practice-down/1",
        "ended": [{"root": str(one.root.path), "processes": one.processes} for one in ended],
        "busy": [str(root.path) for root in busy],
    }

    def render(console: Console) -> None:
        for one in ended:
            console.print(f"ended {one.processes} processes and removed {one.root.path}", soft_wrap=True)
        for root in busy:
            console.print(f"in use by a tour, left alone: {root.path}", soft_wrap=True)
            console.print(
                f"  (Ctrl-C there, or: hostkit practice --down --inventory {root.inventory})", soft_wrap=True
            )
        if not ended and not busy:
            console.print("no practice fleet is up")

    return Outcome(document, 75 if busy else 0, render)


def commands_to_try(root: Root) -> list[tuple[str, str]]:
    """Return what can be typed at a fleet that is kept: each command line, and what it does."""
    program = _program()
    return [
        (f"export HOSTKIT_INVENTORY={shlex.quote(str(root.inventory))}", "for the commands below"),
        (f"{program} train-status", "is the training alive?"),
        (f"{program} checkpoints", "what it has saved"),
        (f"{program} stage --dry-run", "how the newest checkpoint would be copied"),
        (f"{program} eval-latest --quick", "evaluate the newest checkpoint"),
        (f"{program} job-list", "the evaluations on ct129"),
        (f"{program} hosts", "how each host is reached"),
        (f"ssh -F {root.laptop.ssh_config} ct129", "log in by hand"),
        (f'{program} practice --down -i "$HOSTKIT_INVENTORY"', "end this fleet and remove it"),
    ]


def _program() -> str:
    """Return the word for this hostkit: its path where the name is not found, or leads to another one."""
    ours = Path(sys.executable).with_name("hostkit")
    found = shutil.which("hostkit")
    if not ours.is_file() or (found is not None and Path(found).resolve() == ours.resolve()):
        return "hostkit"
    return shlex.quote(str(ours))


@contextmanager
def _interruptible(timeout: float | None) -> Iterator[None]:
    """Let SIGTERM, SIGHUP and the end of --timeout end the tour as Ctrl-C does, with the fleet taken down."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise Interrupted("interrupted; the practice fleet was taken down")

    def give_up(_number: int, _frame: FrameType | None) -> None:
        raise BusyError(
            f"not done in {timeout:g} s; the practice fleet was taken down",
            where="practice",
            hint="give it a longer --timeout, or a less busy machine",
        )

    handlers = {signal.SIGTERM: interrupt, signal.SIGHUP: interrupt, signal.SIGALRM: give_up}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    signal.setitimer(signal.ITIMER_REAL, timeout or 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _signals_ignored() -> Iterator[None]:
    """Finish taking the fleet down, however often Ctrl-C is pressed."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
