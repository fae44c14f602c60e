"""What staging costs the live run: seconds of its own work that a busy loop in ct200 loses per staging.

    python tests/bench/bench_staging_fleet.py [ROUNDS [MEBIBYTES [VARIANT…]]]     (as root; 5 rounds of 3885 MiB)

Stages a checkpoint from ct200 to ct129 of the real fleet, from a cold page cache, beside a busy loop in ct200: as
hostkit does it, with each part of its consideration switched off, at a fixed rate, and with rsync. The order turns with
each round; the loop's rate alone is taken before and after each turn, so that drift cancels.

lost: (1 - rate beside / rate alone) times the duration. source, dest., laptop, kernel: for how long the loop wanted a
core that a process of these had, which others on the machine do not change much. slowed: what it lost while it ran.
The exit status is 1 where a budget is not reached.
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

from tests.bench.bench_staging import forget, make, resident
from tests.bench.waits import tracing, waited_for
from tests.fleet.fleet import Fleet
from tests.fleet.processes import argv, within

ALONE = 2.0  # seconds of the loop alone, before and after each turn
LOST = 0.1  # seconds per staging: the budget
FASTER = 5.0  # than rsync of the whole file: the budget
LOOP = """
import time
count, written = 0, time.monotonic()
while True:
    for _ in range(5000):
        count += 1
    now = time.monotonic()
    if now - written > 0.02:
        open('/workspace/count.new', 'w').write(f'{now} {count}')
        __import__('os').rename('/workspace/count.new', '/workspace/count')
        written = now
"""
# What is added to a travelling module so that its part does nothing.
OFF = {
    "cache-neutral": (
        "host.page_cache",
        "def _advise(*_): pass\ndef _residency(_): return lambda start, size: None\n",
    ),
    "priority": ("host.priority", "def take(): return []\n"),
}
PARTS = tuple(OFF)
MIB = 1 << 20
# name: (parts that are off, flags)
VARIANTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "hostkit": ((), ()),
    **{f"without {part}": ((part,), ()) for part in PARTS},
    "with neither": (PARTS, ()),
    "neither, 128 MiB/s": (PARTS, ("--rate", "128MiB")),
    "hostkit, 128 MiB/s": ((), ("--rate", "128MiB")),
    "plan only": ((), ("--dry-run",)),
}
RSYNC = {"rsync": False, "rsync, low priority": True}
PROGRAM = """
import sys
from hostkit.transport.programs import run
text, off = run._text, {off!r}
run._text = lambda name: text(name) and text(name) + off.get(name, "")
from hostkit.cli import main
if {normal!r}:
    import hostkit.checkpoints
    from hostkit.staging import plan, transfer_commands
    plan.low_priority_argv = transfer_commands.low_priority_argv = lambda tools: []
main()
"""


class Loop:
    """A busy loop in ct200: its iterations, and the time that it waited for a core."""

    def __init__(self, fleet: Fleet) -> None:
        self.file = fleet.root("ct200") / "workspace/count"
        fleet.sh("ct200", ["sh", "-c", "setsid -f python3 -S - <&0 >/dev/null 2>&1"], stdin=LOOP.encode())
        while not self.file.exists():
            time.sleep(0.05)
        self.pid = next(pid for pid in within(fleet.init_of("ct200")) if argv(pid)[1:] == ["-S", "-"])
        self.schedstat = Path(f"/proc/{self.pid}/schedstat")

    def read(self) -> tuple[float, int, float, float]:
        """Return the time, the iterations, and the seconds run and waited so far."""
        at, count = self.file.read_text().split()
        ran, waited = self.schedstat.read_text().split()[:2]
        return float(at), int(count), int(ran) / 1e9, int(waited) / 1e9

    def since(self, then: tuple[float, int, float, float]) -> tuple[float, float, float]:
        """Return iterations a second, iterations a second on a core, and seconds waited a second."""
        at, count, ran, waited = (now - before for now, before in zip(self.read(), then, strict=True))
        return count / at, count / ran, waited / at

    def alone(self) -> tuple[float, float, float]:
        then = self.read()
        time.sleep(ALONE)
        return self.since(then)


class Stagings:
    """One checkpoint in ct200, brought to ct129 in any variant."""

    def __init__(self, fleet: Fleet, mebibytes: int) -> None:
        self.fleet = fleet
        self.source = fleet.root("ct200") / "workspace/checkpoints/step_4000/checkpoint.pt"
        self.source.parent.mkdir(parents=True)
        make(self.source, mebibytes)
        (fleet.root("ct129") / "root/eval").mkdir(parents=True, exist_ok=True)
        self.flags = ["stage", "--run", "drafter", "--to", "ct129", "--json"]
        plan = json.loads(fleet.hostkit(*self.flags, "--full", "--dry-run").stdout)["stage"]
        self.rsync = [re.sub("-o Ciphers=[^ ]+ ", "", arg) for arg in plan["argv"]]
        self.rsync = [arg for arg in self.rsync if arg not in ("--append", "--copy-links")]

    def copy(self, variant: str, name: str) -> int:
        """Stage once; return the bytes that came."""
        if variant in RSYNC:
            argv = [*self.rsync, "--whole-file", "--fsync", f"/root/eval/{name}/"]
            if RSYNC[variant]:
                argv = ["nice", "-n19", "ionice", "-c3", *argv]
            else:
                argv = [arg.replace("nice -n19 ionice -c3 ", "") for arg in argv]
                argv = [re.sub(r"\S*nice -n19 \S*ionice -c3 ", "", arg) for arg in argv]
            self.fleet.sh("ct129", ["mkdir", "-p", f"/root/eval/{name}"])
            self.fleet.sh(
                "ct129", argv, stdin=b"workspace/checkpoints/step_4000/./checkpoint.pt\0", timeout=600
            )
            return self.source.stat().st_size
        parts, flags = VARIANTS[variant]
        off = dict(OFF[part] for part in parts)
        program = PROGRAM.format(off=off, normal="priority" in parts)
        done = subprocess.run(
            [sys.executable, "-c", program, *self.flags, "--folder", f"/root/eval/{name}", *flags],
            env=self.fleet.environment,
            cwd=self.fleet.home,
            text=True,
            capture_output=True,
            timeout=600,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode:
            raise SystemExit(f"{variant}: {done.stdout} {done.stderr}")
        reply = json.loads(done.stdout)
        if "--dry-run" in flags:
            return 0
        assert reply["method"] == "weights", reply
        return int(reply["bytes"])

    def remove(self, name: str) -> None:
        self.fleet.sh("ct129", ["rm", "-rf", f"/root/eval/{name}"])
        os.sync()


def is_kernel(pid: int) -> bool:
    """Whether it is a thread of the kernel (a child of the second process)."""
    try:
        return pid == 2 or Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] == "2"
    except OSError:
        return False


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    mebibytes = int(sys.argv[2]) if len(sys.argv) > 2 else 3885
    variants = sys.argv[3:] or [*VARIANTS, *RSYNC]
    turns: dict[str, list[dict[str, float]]] = {variant: [] for variant in variants}
    fleet = Fleet.up(60)
    try:
        with tracing() as trace:
            stagings = Stagings(fleet, mebibytes)
            loop = Loop(fleet)
            for number in range(rounds):
                first = number * 5 % len(variants)
                for variant in [*variants[first:], *variants[:first]]:
                    forget(stagings.source)
                    before = loop.alone()
                    roots = dict.fromkeys(within(fleet.init.pid), "source") | {
                        os.getpid(): "destination" if variant in RSYNC else "laptop"
                    }
                    roots |= dict.fromkeys(within(fleet.init_of("ct129")), "destination")
                    trace.begin()
                    then, began = loop.read(), time.perf_counter()
                    count = stagings.copy(variant, f"n{number}")
                    seconds = time.perf_counter() - began
                    rate, speed, waited = loop.since(then)
                    waits = waited_for(trace.end(), loop.pid, roots, is_kernel)
                    left = resident(stagings.source) / MIB
                    stagings.remove(f"n{number}")
                    after = loop.alone()
                    turn = {
                        "lost": (1 - 2 * rate / (before[0] + after[0])) * seconds,
                        "waited": (waited - (before[2] + after[2]) / 2) * seconds,
                        "slowed": (1 - 2 * speed / (before[1] + after[1])) * waits["ran"],
                        **{
                            f"for_{who}": waits[who]
                            for who in ("source", "destination", "laptop", "kernel", "others")
                        },
                        "ran": waits["ran"],
                        "seconds": seconds,
                        "mib": count / MIB,
                        "cached": left,
                        "drift": abs(before[0] - after[0]) / max(before[0], after[0]),
                        "alone_waited": (before[2] + after[2]) / 2,
                        "load": os.getloadavg()[0],
                    }
                    turns[variant].append(turn)
                    print(
                        json.dumps({"round": number, "variant": variant} | turn), file=sys.stderr, flush=True
                    )
    finally:
        fleet.down()
    return report(turns, mebibytes)


def report(turns: dict[str, list[dict[str, float]]], mebibytes: int) -> int:
    """Print the table; return 1 where a budget is not reached."""

    def middle(variant: str, key: str) -> float:
        return statistics.median(turn[key] for turn in turns[variant])

    rounds = len(next(iter(turns.values())))
    load = statistics.median(turn["load"] for each in turns.values() for turn in each)
    print(
        f"{mebibytes / 1024:.2f} GiB, {rounds} rounds, load {load:.1f}; medians, and quartiles of what is lost"
    )
    print(
        f"  {'variant':20} {'lost':>7} {'quartiles':>17} {'waited':>8} {'source':>8} {'dest.':>8} {'laptop':>8} {'kernel':>8} {'slowed':>8} {'took':>8} {'moved':>10} {'cached':>10}"
    )
    for variant, each in turns.items():
        lost = [turn["lost"] for turn in each]
        low, _, high = statistics.quantiles(lost, n=4) if len(lost) > 1 else [lost[0]] * 3
        print(
            f"  {variant:20} {middle(variant, 'lost'):5.2f} s  {low:5.2f} to {high:5.2f} s"
            f" {middle(variant, 'waited'):6.2f} s {middle(variant, 'for_source'):6.2f} s {middle(variant, 'for_destination'):6.2f} s {middle(variant, 'for_laptop'):6.2f} s {middle(variant, 'for_kernel'):6.2f} s"
            f" {middle(variant, 'slowed'):6.2f} s {middle(variant, 'seconds'):6.2f} s"
            f" {middle(variant, 'mib'):6.0f} MiB {middle(variant, 'cached'):6.0f} MiB"
        )
    missed = 0
    if "hostkit" in turns:
        budgets = [("seconds that the loop loses", middle("hostkit", "lost"), "at most", LOST)]
        if "rsync" in turns:
            ratio = middle("rsync", "seconds") / middle("hostkit", "seconds")
            budgets.append(("duration, rsync / hostkit", ratio, "at least", FASTER))
        for what, value, side, budget in budgets:
            good = value <= budget if side == "at most" else value >= budget
            missed += not good
            print(f"  {what:32} {value:6.2f}   {side} {budget:g}   {'reached' if good else 'NOT REACHED'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
