"""The console script `hostkit`: Invoke's tasks from any directory, with the full table of exit codes."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. What it needs is imported inside, so that Ctrl-C counts from the first moment."""
    try:
        from hostkit import __version__
        from hostkit.program import Hostkit
        from hostkit.tasks.namespace import namespace

        Hostkit(namespace=namespace, name="hostkit", binary="hostkit", version=__version__).run()
    except KeyboardInterrupt:
        sys.exit(130)
