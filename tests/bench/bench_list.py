"""`invoke --list` of hostkit against that of a trivial tasks file, run in turn in one go.

    python tests/bench/bench_list.py [RUNS]

Prints the medians of wall and CPU seconds of the whole process, and the ratio; the budget is 1.3.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BUDGET = 1.3
TRIVIAL = '''from invoke import task


@task
def hello(context):
    """Say hello."""
'''


def once(folder: Path) -> tuple[float, float]:
    """Return wall and CPU seconds of one `invoke --list` in `folder`."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    argv = [sys.executable, "-m", "invoke", "--list"]
    subprocess.run(argv, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    here = Path(__file__).resolve().parents[2]
    with tempfile.TemporaryDirectory() as name:
        trivial = Path(name)
        (trivial / "tasks.py").write_text(TRIVIAL)
        once(here), once(trivial)
        pairs = [(once(here), once(trivial)) for _ in range(runs)]
    for index, what in enumerate(("wall", "CPU")):
        ours = statistics.median(pair[0][index] for pair in pairs)
        theirs = statistics.median(pair[1][index] for pair in pairs)
        ratio = statistics.median(pair[0][index] / pair[1][index] for pair in pairs)
        print(
            f"{what}: hostkit {ours * 1000:.0f} ms, trivial {theirs * 1000:.0f} ms, ratio {ratio:.2f} (budget {BUDGET})"
        )
    return 0 if ratio <= BUDGET else 1


if __name__ == "__main__":
    sys.exit(main())
