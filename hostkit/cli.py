"""The console script `hostkit`: Invoke's tasks from any directory, with the full table of exit codes."""

from __future__ import annotations

import signal
import sys
from types import FrameType


def main() -> None:
    """Run the command line. What it needs is imported inside, so that Ctrl-C counts from the first moment."""
    try:
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_DFL:  # nohup has it ignored, and that stays
                signal.signal(number, _end)
        from hostkit import __version__
        from hostkit.program import Hostkit
        from hostkit.tasks.namespace import namespace

        Hostkit(namespace=namespace, name="hostkit", binary="hostkit", version=__version__).run()
    except KeyboardInterrupt:
        sys.exit(130)


def _end(number: int, _frame: FrameType | None) -> None:
    """End as Ctrl-C does, so that no command of ours outlives us; a second signal ends us at once."""
    signal.signal(number, signal.SIG_DFL)
    raise SystemExit(128 + number)
