"""Staging from ct200 to ct129 through ssh and `pct exec`, against a plain rsync of the whole file; on the real fleet.

    python tests/bench/bench_staging_fleet.py [ROUNDS [MEBIBYTES]]          (as root; 5 rounds of 8192 MiB)

Both pull on ct129, in turn, from a cold page cache; then once more beside a busy loop in ct200, to tell what it keeps
of its rate with nothing else. Says where hostkit's time goes. The exit status is 1 where a budget is not reached. A
drafter of a 27B target saves some 20 GB a step; of a small checkpoint the fixed second and a half is a larger part.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.bench_staging import forget, make
from tests.fleet.fleet import Fleet

LOOP = """
import time
count, told = 0, time.monotonic()
while True:
    for _ in range(20000):
        count += 1
    now = time.monotonic()
    if now - told > 0.05:
        open('/workspace/count.new', 'w').write(f'{now} {count}')
        __import__('os').rename('/workspace/count.new', '/workspace/count')
        told = now
"""


class Loop:
    """A busy loop in ct200, and its rate between two looks."""

    def __init__(self, fleet: Fleet) -> None:
        self.file = fleet.root("ct200") / "workspace/count"
        fleet.sh("ct200", ["sh", "-c", "setsid -f python3 -S - <&0 >/dev/null 2>&1"], stdin=LOOP.encode())
        found = [pid for pid, words in fleet.processes("ct200").items() if words[1:] == ["-S", "-"]]
        self.schedstat = fleet.root("ct200") / f"proc/{found[0]}/schedstat"

    def times(self) -> tuple[int, int]:
        """Return for how long it has run, and waited for a core."""
        ran, waited = self.schedstat.read_text().split()[:2]
        return int(ran), int(waited)

    def look(self) -> tuple[float, int]:
        while not self.file.exists():
            time.sleep(0.05)
        at, count = self.file.read_text().split()
        return float(at), int(count)

    def rate(self, since: tuple[float, int]) -> float:
        now = self.look()
        return (now[1] - since[1]) / max(1e-9, now[0] - since[0])

    def alone(self) -> float:
        """Return the rate of three seconds with nothing beside it: before and after a copy, since machines drift."""
        since = self.look()
        time.sleep(3)
        return self.rate(since)


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    mebibytes = int(sys.argv[2]) if len(sys.argv) > 2 else 8192
    missed, inside = 0, []
    fleet = Fleet.up(60)
    try:
        source = fleet.root("ct200") / "workspace/checkpoints/step_4000/checkpoint.pt"
        source.parent.mkdir(parents=True)
        make(source, mebibytes)
        (fleet.root("ct129") / "root/eval").mkdir(parents=True, exist_ok=True)
        flags = ["--run", "drafter", "--to", "ct129"]
        plan = json.loads(fleet.hostkit("stage", *flags, "--full", "--dry-run", "--json").stdout)["stage"]
        plain = [word for word in plan["argv"] if word not in ("--append", "--copy-links")]
        plain = [word.replace("nice -n19 ionice -c3 ", "") for word in plain]
        plain = [re.sub("-o Ciphers=[^ ]+ ", "", word) for word in plain]

        def pull(way: str, name: str) -> float:
            forget(source)
            began = time.perf_counter()
            if way == "hostkit":
                done = fleet.hostkit("stage", *flags, "--folder", f"/root/eval/{name}", "--json", timeout=600)
                assert done.returncode == 0, done.stdout + done.stderr
                told = json.loads(done.stdout)
                assert told["method"] == "weights"
                inside.append(float(told.get("seconds", 0)))
            else:
                fleet.sh("ct129", ["mkdir", "-p", f"/root/eval/{name}"])
                words = [*plain, "--whole-file", "--fsync", f"/root/eval/{name}/"]
                names = b"workspace/checkpoints/step_4000/./checkpoint.pt\0"
                fleet.sh("ct129", words, stdin=names, timeout=600)
            took = time.perf_counter() - began
            fleet.sh("ct129", ["rm", "-rf", f"/root/eval/{name}"])
            return took

        took: dict[str, list[float]] = {"hostkit": [], "rsync": []}
        kept: dict[str, list[float]] = {"hostkit": [], "rsync": []}
        had: dict[str, list[float]] = {"hostkit": [], "rsync": []}
        for number in range(rounds):
            for way in ("hostkit", "rsync") if number % 2 else ("rsync", "hostkit"):
                took[way].append(pull(way, f"{way}-{number}"))
        loop = Loop(fleet)
        for number in range(rounds):
            for way in ("hostkit", "rsync") if number % 2 else ("rsync", "hostkit"):
                before = loop.alone()
                since, then = loop.look(), loop.times()
                pull(way, f"{way}-beside-{number}")
                rate, now = loop.rate(since), loop.times()
                ran, waited = now[0] - then[0], now[1] - then[1]
                had[way].append(ran / (ran + waited))
                kept[way].append(2 * rate / (before + loop.alone()))
        print(f"{source.stat().st_size / 2**30:.2f} GiB, {rounds} interleaved rounds, medians")
        for way in took:
            rate = statistics.median(kept[way])
            print(
                f"  {way:8} {statistics.median(took[way]):6.2f} s   a busy loop in ct200 keeps {rate:.3f} of its rate, "
                f"and has {statistics.median(had[way]):.3f} of the CPU time that it wants"
            )
        pairs = zip(took["rsync"], took["hostkit"], strict=True)
        found = {
            "wall, rsync / hostkit": (statistics.median(one / other for one, other in pairs), 5.0),
            "rate that the busy loop keeps": (statistics.median(kept["hostkit"]), 0.95),
        }
        for what, (value, budget) in found.items():
            good = value >= budget
            missed += not good
            print(f"  {what:32} {value:6.2f}   at least {budget:g}   {'reached' if good else 'NOT REACHED'}")
        copied = statistics.median(inside[:rounds])  # those beside the loop come after
        print(
            f"  of hostkit's {statistics.median(took['hostkit']):.2f} s, {copied:.2f} s are the copy itself"
        )
    finally:
        fleet.down()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
