"""How soon hostkit answers, each against what somebody would type instead, in turn in one go.

    python tests/bench/bench_status.py [RUNS] [remote|local|list]...      (remote as root: it raises a real fleet)

remote: `train-status`, cold, through ct129 and pve into ct200 with 40 ms of delay, against `ssh -J` with one compound
command; and when its first line is there. local: `train-status` of a run on this machine, in seconds of CPU with all
that it starts, beside `python -c pass`. list: `hostkit --list` against `invoke --list` of a trivial tasks file.
The exit status is 1 where a goal is missed. Figures hold for a machine that does nothing else.
"""

from __future__ import annotations

import os
import resource
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(HERE))

RTT_MS = 40
HOSTKIT = [sys.executable, "-c", "from hostkit.cli import main; main()"]
COMPOUND = (
    "date +%s; ps -eo pid,ppid,stat,etimes,cputimes,args; tail -c 16384 /workspace/train.log; "
    "ls -ln /workspace/checkpoints; df -B1 /workspace; cat /proc/meminfo /proc/loadavg"
)
TRIVIAL = '''from invoke import task


@task
def hello(context):
    """Say hello."""
'''


def environment(folder: Path, given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment in which compiled modules are kept, as an installed hostkit's are."""
    base = dict(os.environ if given is None else given)
    base.pop("PYTHONDONTWRITEBYTECODE", None)
    return base | {"PYTHONPYCACHEPREFIX": str(folder / "pycache"), "PYTHONPATH": str(HERE)}


def timed(
    argv: list[str], env: dict[str, str], cwd: Path, codes: tuple[int, ...] = (0,)
) -> tuple[float, float]:
    """Return wall and CPU seconds of a command with all that it started. Raises where it fails."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(argv, env=env, cwd=cwd, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode in codes, done.stdout.decode() + done.stderr.decode()
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def first_line(argv: list[str], env: dict[str, str], cwd: Path) -> float:
    """Return the seconds until a command's first byte on stderr."""
    began = time.perf_counter()
    with subprocess.Popen(argv, env=env, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
        assert child.stderr is not None
        assert child.stderr.read(1)
        took = time.perf_counter() - began
        child.stderr.read()
    return took


def verdict(what: str, value: float, goal: float, unit: str = "") -> bool:
    good = value <= goal
    print(f"  {what:52} {value:.2f}{unit}   goal {goal:g}{unit}   {'reached' if good else 'MISSED'}")
    return good


def interleaved(runs: int, *ways: Callable[[], float]) -> list[list[float]]:
    """Run all ways in turn, once unmeasured, and return the times of each."""
    for way in ways:
        way()
    rounds = [[way() for way in ways] for _ in range(runs)]
    return [list(times) for times in zip(*rounds, strict=True)]


def remote(runs: int) -> bool:
    from tests.fleet.fleet import Fleet

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    fleet = Fleet.up(70)
    target = f"{fleet.slot.outer(129)}:22"
    proxy_argv = [
        sys.executable,
        str(Path(__file__).with_name("delay_proxy.py")),
        str(port),
        target,
        str(RTT_MS),
    ]
    proxy = subprocess.Popen(proxy_argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert proxy.stdout is not None and proxy.stdout.readline()
        keys = [line.split(maxsplit=1)[1] for line in (fleet.home / "known_hosts").read_text().splitlines()]
        known = fleet.home / "known_hosts_bench"
        known.write_text(f"[127.0.0.1]:{port} {keys[0]}\npve {keys[1]}\n")
        (fleet.home / "ssh_config").write_text(
            f"Host *\n  User root\n  IdentityFile {fleet.identity}\n  UserKnownHostsFile {known}\n"
            f"Host ct129\n  HostName 127.0.0.1\n  Port {port}\nHost pve\n  HostName {fleet.slot.inner(6)}\n"
            f"  HostKeyAlias pve\n  ProxyJump ct129\n"
        )
        inventory = fleet.inventory_with(
            lambda data: data["hosts"]["ct129"].update(address="127.0.0.1", port=port, known_hosts=str(known))
        )
        script = f"import time\nopen('/workspace/train.log','w').write('step 9 loss 2\\nstep 10 loss 2\\n')\ntime.sleep(3600)"
        (fleet.root("ct200") / "workspace/train_dflash_pipeline.py").write_text(script)
        fleet.start_process("ct200", ["python3", "train_dflash_pipeline.py"], cwd="/workspace")
        env = environment(fleet.home, fleet.environment)
        status = [*HOSTKIT, "train-status", "--inventory", str(inventory)]
        inner = shlex.join(["pct", "exec", "200", "--", "sh", "-c", COMPOUND])
        ssh = ["ssh", "-F", str(fleet.home / "ssh_config"), "pve", inner]
        ours, theirs = interleaved(
            runs,
            lambda: timed(status, env, fleet.home, (0, 1, 2))[0],
            lambda: timed(ssh, env, fleet.home)[0],
        )
        line = statistics.median(first_line(status, env, fleet.home) for _ in range(runs))
    finally:
        proxy.kill()
        proxy.wait()
        fleet.down()
    print(
        f"train-status, cold, two hops and a container, {RTT_MS} ms: {statistics.median(ours) * 1000:.0f} ms"
    )
    print(f"ssh -J with one compound command:                     {statistics.median(theirs) * 1000:.0f} ms")
    ratio = statistics.median(one / other for one, other in zip(ours, theirs, strict=True))
    return verdict("train-status / ssh -J, wall", ratio, 0.9) & verdict("first line", line, 0.3, " s")


def local(runs: int) -> bool:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "log").write_text("step 9 loss 2\nstep 10 loss 2\n")
        (folder / "fleet.yaml").write_text(
            f"hostkit: 1\nhosts:\n  here: {{local: true}}\nruns:\n  run: {{host: here, process: {{script: no_such.py}}, "
            f"log: {{path: {folder}/log}}, total_steps: 10}}\n"
        )
        homes = {f"XDG_{kind}_HOME": str(folder / kind) for kind in ("STATE", "DATA", "CACHE", "CONFIG")}
        env = environment(folder) | homes | {"HOSTKIT_INVENTORY": str(folder / "fleet.yaml")}
        ours, python = interleaved(
            runs,
            lambda: timed([*HOSTKIT, "train-status"], env, folder)[1],
            lambda: timed([sys.executable, "-c", "pass"], env, folder)[1],
        )
        line = statistics.median(first_line([*HOSTKIT, "train-status"], env, folder) for _ in range(runs))
    print(f"train-status of a local run: {statistics.median(ours):.3f} s of CPU (least {min(ours):.3f})")
    print(f"python -c pass:              {statistics.median(python):.3f} s of CPU")
    reached = verdict("local train-status, CPU with all that it starts", statistics.median(ours), 0.25, " s")
    return reached & verdict("first line", line, 0.3, " s")


def listing(runs: int) -> bool:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tasks.py").write_text(TRIVIAL)
        env = environment(folder)
        ways = {
            "hostkit --list": ([*HOSTKIT, "--list"], folder),
            "invoke --list in a checkout": ([sys.executable, "-m", "invoke", "--list"], HERE),
            "invoke --list, trivial": ([sys.executable, "-m", "invoke", "--list"], folder),
        }
        times = interleaved(
            runs, *(lambda argv=argv, cwd=cwd: timed(argv, env, cwd)[1] for argv, cwd in ways.values())
        )
    for what, taken in zip(ways, times, strict=True):
        print(f"{what + ':':30} {statistics.median(taken):.3f} s of CPU")
    own, checkout, trivial = (statistics.median(taken) for taken in times)
    reached = verdict("hostkit --list / trivial, CPU", own / trivial, 1.2)
    return reached & verdict("invoke --list in a checkout / trivial, CPU", checkout / trivial, 1.2)


def main() -> int:
    numbers = [word for word in sys.argv[1:] if word.isdigit()]
    runs = int(numbers[0]) if numbers else 9
    parts = {"remote": remote, "local": local, "list": listing}
    chosen = [word for word in sys.argv[1:] if not word.isdigit()] or list(parts)
    return 0 if all([parts[word](runs) for word in chosen]) else 1


if __name__ == "__main__":
    sys.exit(main())
