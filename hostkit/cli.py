"""The console script `hostkit`: its commands from any directory, with the full table of exit codes."""

from __future__ import annotations

import gc
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

_interrupted: list[int] = []  # signals that came


def main() -> None:
    """Run the command line. What it needs is imported inside, so that Ctrl-C counts from the first moment."""
    try:
        if signal.getsignal(signal.SIGINT) == signal.default_int_handler:  # ignored in the background
            signal.signal(signal.SIGINT, _interrupt)
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_DFL:  # nohup has it ignored, and that stays
                signal.signal(number, _end)
        gc.set_threshold(100_000, 20, 20)  # imports allocate much and free nothing: saves 20 ms of CPU
        sys.setswitchinterval(
            0.001
        )  # a login's thread need not wait 5 ms at each step for an import beside it
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # saves a scan of all installed packages
        from hostkit.program import run
        from hostkit.tasks.catalogue import commands

        code = run(sys.argv[1:], commands)
    except SystemExit:
        raise
    except BaseException as error:
        if _interrupted or isinstance(error, KeyboardInterrupt):
            sys.exit(130)  # amid the import of a compiled module Ctrl-C may come out as any error
        raise
    _leave(code)


def _leave(code: int) -> NoReturn:
    """Exit without the teardown of modules and threads, which costs a tenth of a second and changes nothing."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    finally:
        os._exit(code)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Raise KeyboardInterrupt, and remember it."""
    _interrupted.append(number)
    signal.default_int_handler(number, frame)


def _end(number: int, _frame: FrameType | None) -> None:
    """End as Ctrl-C does, so that no command of ours outlives us; a second signal ends us at once."""
    signal.signal(number, signal.SIG_DFL)
    raise SystemExit(128 + number)
