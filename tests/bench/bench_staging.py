"""Taking the weights out of a checkpoint, against copying all of it and against what torch does; in turn, in one go.

    python tests/bench/bench_staging.py [ROUNDS [MEBIBYTES [FOLDER]]]        5 rounds of 3885 MiB in /var/tmp

Makes a checkpoint on the spot, a seventh of it weights, and drops it from the page cache before each turn. Prints the
medians of wall seconds, CPU seconds, peak memory and what stayed in the page cache of the source; then what was asked
for, with its budget. The exit status is 1 where a budget is not reached.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REMOTE = Path(__file__).resolve().parents[2] / "hostkit" / "remote"
CHECKPOINT_CLI = str(REMOTE / "checkpoint_cli.py")
Turn = tuple[float, float, float, float]
BUDGETS = {
    "bytes shipped / wanted": ("at most", 1.001),
    "wall, full cp / hostkit": ("at least", 6.0),
    "CPU, full cp / hostkit": ("at least", 6.0),
    "CPU, torch on the source / hostkit": ("at least", 2.5),
    "memory, MiB": ("at most", 32.0),
    "memory, this against an eighth of the size, MiB": ("at most", 4.0),
    "memory, torch on the source / hostkit": ("at least", 20.0),
    "wall, hostkit / copy_file_range": ("at most", 1.6),
    "CPU, hostkit / copy_file_range": ("at most", 2.0),
    "page cache left, MiB": ("at most", 16.0),
    "resident pages lost, %": ("at most", 1.0),
    "check of a cold file, ms": ("at most", 100.0),
    "check of a cold file, MiB of it in memory": ("at most", 2.0),
    "read again after kill -9, MiB": ("at most", 4.0),
}
TORCH = (
    "import sys, torch; c = torch.load(sys.argv[1], mmap=True, weights_only=True);"
    "torch.save({'drafter': c['drafter'], 'step': c['step']}, sys.argv[2]);"
    "f = open(sys.argv[2], 'rb'); import os; os.fsync(f.fileno())"
)
CP = "import shutil, sys, os; shutil.copyfile(*sys.argv[1:3]); f = open(sys.argv[2], 'rb'); os.fsync(f.fileno())"
RANGE = """
import os, sys
sys.path.insert(0, %r)
from subset.lay_out import lay_out
source, target = os.open(sys.argv[1], os.O_RDONLY), os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)
for piece in lay_out(sys.argv[1], ['drafter', 'step']).pieces:
    if piece.literal is not None:
        os.pwrite(target, piece.literal, piece.start)
        continue
    done = 0
    while done < piece.size:
        done += os.copy_file_range(source, target, piece.size - done, piece.offset + done, piece.start + done)
os.fsync(target)
""" % str(REMOTE)  # fmt: skip
# A child starts with its parent's peak memory, so that a small one must come from a small parent.
MEASURE = """
import json, os, resource, sys, time
began = time.perf_counter()
pid = os.spawnvp(os.P_NOWAIT, sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(pid, 0)
print(json.dumps([time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, status]))
"""


def make(path: Path, mebibytes: int) -> int:
    """Save a checkpoint of about that size; return the bytes of its weights. In its own process: torch is large."""
    code = (
        "import sys, torch\n"
        f"n, layers = {mebibytes} * 2**20 // 4 // 7 // 24, 24\n"
        "weights = {f'layers.{i}.weight': torch.randn(n) for i in range(layers)}\n"
        "state = {i: {'exp_avg': torch.randn(n * 3), 'exp_avg_sq': torch.randn(n * 3)} for i in range(layers)}\n"
        "torch.save({'optimizer': state, 'drafter': weights, 'step': 4000}, sys.argv[1])\n"
        "print(n * layers * 4)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], check=True, capture_output=True, text=True)
    return int(done.stdout)


def resident(path: Path) -> int:
    """Return how many bytes of a file are in memory (cachestat, else mincore)."""
    sys.path.insert(0, str(REMOTE))
    from host import page_cache

    descriptor = os.open(path, os.O_RDWR)
    try:
        found = page_cache._residency(descriptor)(0, path.stat().st_size)
        return int(found or 0) * os.sysconf("SC_PAGESIZE")
    finally:
        os.close(descriptor)


def forget(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def turn(words: list[str], source: Path, target: Path) -> Turn:
    """Return wall and CPU seconds, peak MiB, and the MiB of the source that are in memory afterwards."""
    forget(source)
    target.unlink(missing_ok=True)
    ctypes.CDLL(None).sync()
    done = subprocess.run(
        [sys.executable, "-S", "-c", MEASURE, *words], check=True, capture_output=True, text=True
    )
    wall, cpu, peak, status = json.loads(done.stdout.splitlines()[-1])
    if status:
        raise SystemExit(f"{words} failed: {done.stdout} {done.stderr}")
    return wall, cpu, peak, resident(source) / 2**20


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    mebibytes = int(sys.argv[2]) if len(sys.argv) > 2 else 3885
    base = sys.argv[3] if len(sys.argv) > 3 else "/var/tmp"
    with tempfile.TemporaryDirectory(dir=base) as name:
        source, target, small = (Path(name) / one for one in ("checkpoint.pt", "out.pt", "small.pt"))
        wanted = make(source, mebibytes)
        make(small, mebibytes // 8)
        ways = {
            "cp": [sys.executable, "-S", "-c", CP, str(source), str(target)],
            "hostkit": copying(source, target),
            "torch": [sys.executable, "-c", TORCH, str(source), str(target)],
            "range": [sys.executable, "-S", "-c", RANGE, str(source), str(target)],
        }
        seen: dict[str, list[Turn]] = {way: [] for way in [*ways, "small", "check"]}
        shipped = 0
        for number in range(rounds):
            for way in ways if number % 2 else reversed(ways):
                seen[way].append(turn(ways[way], source, target))
                if way == "hostkit":
                    shipped = target.stat().st_size
            seen["small"].append(turn(copying(small, target), small, target))
            seen["check"].append(
                turn([sys.executable, "-S", CHECKPOINT_CLI, "check", str(source)], source, target)
            )
        more = {"resident pages lost, %": pages_lost(ways["hostkit"], source, target)}
        more["read again after kill -9, MiB"] = read_again(source, target)
        more["bytes shipped / wanted"] = shipped / wanted
        return report(seen, more, source.stat().st_size)


def copying(source: Path, target: Path) -> list[str]:
    return [sys.executable, "-S", CHECKPOINT_CLI, "copy", str(source), str(target), "--keys", "drafter,step"]


def read_again(source: Path, target: Path) -> float:
    """Return the MiB that a copy reads twice of the source, because the one before was killed; checks the bytes."""
    target.unlink(missing_ok=True)
    words = copying(source, target)
    subprocess.run(words, check=True, capture_output=True)
    whole = hashlib.sha256(target.read_bytes()).hexdigest()
    size = target.stat().st_size
    target.unlink()
    part = target.with_name(target.name + ".part")
    first = subprocess.Popen([*words, "--rate", str(max(1 << 20, size // 2))], stdout=subprocess.DEVNULL)
    while not (part.exists() and part.stat().st_size > size // 3):
        time.sleep(0.01)
    first.kill()
    first.wait()
    came = part.stat().st_size
    told = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
    if hashlib.sha256(target.read_bytes()).hexdigest() != whole or told["resumed_at"] != came:
        raise SystemExit("what came after kill -9 is not what comes without")
    return max(0, int(told["read"]) - (size - came)) / 2**20


def pages_lost(words: list[str], source: Path, target: Path) -> float:
    """Return the per cent of a quarter of the file, in memory before, that a copy takes away."""
    forget(source)
    descriptor = os.open(source, os.O_RDONLY)
    size = source.stat().st_size
    for at in range(size * 3 // 4, size, 1 << 20):
        os.pread(descriptor, 1 << 20, at)
    os.close(descriptor)
    before = resident(source)
    target.unlink(missing_ok=True)
    subprocess.run(words, check=True, capture_output=True)
    return max(0.0, 100 * (before - resident(source)) / before)


def report(seen: dict[str, list[Turn]], more: dict[str, float], size: int) -> int:
    """Print the table; return 1 where a budget is not reached."""

    def middle(way: str, index: int) -> float:
        return statistics.median(one[index] for one in seen[way])

    def ratio(above: str, below: str, index: int) -> float:
        pairs = zip(seen[above], seen[below], strict=True)
        return statistics.median(one[index] / other[index] for one, other in pairs)

    print(f"a checkpoint of {size / 2**30:.2f} GiB, {len(seen['cp'])} interleaved rounds, medians")
    for way in seen:
        print(
            f"  {way:8} wall {middle(way, 0):6.2f} s   CPU {middle(way, 1):6.2f} s   peak {middle(way, 2):6.0f} MiB"
            f"   of the source in memory afterwards {middle(way, 3):7.1f} MiB"
        )
    found = more | {
        "wall, full cp / hostkit": ratio("cp", "hostkit", 0),
        "CPU, full cp / hostkit": ratio("cp", "hostkit", 1),
        "CPU, torch on the source / hostkit": ratio("torch", "hostkit", 1),
        "memory, torch on the source / hostkit": ratio("torch", "hostkit", 2),
        "memory, MiB": middle("hostkit", 2),
        "memory, this against an eighth of the size, MiB": abs(middle("hostkit", 2) - middle("small", 2)),
        "wall, hostkit / copy_file_range": ratio("hostkit", "range", 0),
        "CPU, hostkit / copy_file_range": ratio("hostkit", "range", 1),
        "page cache left, MiB": middle("hostkit", 3),
        "check of a cold file, ms": 1000 * middle("check", 0),
        "check of a cold file, MiB of it in memory": middle("check", 3),
    }
    missed = 0
    for what, (side, budget) in BUDGETS.items():
        good = found[what] <= budget if side == "at most" else found[what] >= budget
        missed += not good
        print(f"  {what:48} {found[what]:8.3f}   {side} {budget:g}   {'reached' if good else 'NOT REACHED'}")
    return 1 if missed else 0


if __name__ == "__main__":
    started = time.monotonic()
    code = main()
    print(f"  {time.monotonic() - started:.0f} s in all")
    sys.exit(code)
