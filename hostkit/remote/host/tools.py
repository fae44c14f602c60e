"""Where the programs are that a copy uses.

Travels to hosts: standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import os


def tools() -> dict[str, str | None]:
    """Return the path of each program; None where there is none."""
    import shutil  # slow to load, and not always needed

    more = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]  # pct exec gives a PATH of its own
    path = os.pathsep.join([os.environ.get("PATH", ""), *more])
    return {name: shutil.which(name, path=path) for name in ("rsync", "nice", "ionice")}
