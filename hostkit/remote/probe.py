"""Read the state of this host's runs once: clocks, processes, logs, checkpoints, room, GPUs. One request, one reply.

Travels to hosts: standard library only, Python 3.8 or newer. Never sleeps, writes nothing, starts nothing but
nvidia-smi (with a time limit), ends by itself. request:
{"runs": {name: {"process": {...}, "log": {"path", "known", "inode"}, "checkpoints": {"root", "pattern", "marker"},
"gpus": [0], "last": identity or null}}}. Only facts come back; what they mean is decided elsewhere.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional

from checkpoint import completeness
from run import log as run_log
from run import processes

CANDIDATES = 64
WORDS, LETTERS = 48, 300  # of an argv
GPU_SECONDS = 4.0
GPU_NAMES = ("index", "name", "use", "memory_used", "memory_total", "temperature")
GPU_FIELDS = "index,name,utilization.gpu,memory.used,memory.total,temperature.gpu"
YOUNG = 600  # seconds: no probe lives longer
APART = 5  # seconds that a wall clock may have been set by since
CAP_SYS_PTRACE = 19  # whoever has it sees all processes, hidepid or not
# the clocks are asked for by number: time.CLOCK_BOOTTIME is not in every build
CLOCK_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", 7)


def serve(request: Dict[str, Any]) -> Dict[str, Any]:
    """Answer one request."""
    runs = request["runs"]
    gpus = _start_gpus() if any(run.get("gpus") for run in runs.values()) else None
    clock = _clock()
    saves = {name: _saves(run.get("checkpoints")) for name, run in runs.items()}
    rows, unreadable = processes.table()
    now = _process_clock(clock, rows)
    replies = {name: _reply(run, saves[name], rows, now) for name, run in runs.items()}
    return {
        "schema": "hostkit.probe/1",
        "clock": dict(clock, now_ticks=now["ticks"], hz=now["hz"], sane=now["sane"]),
        "host": {
            "name": os.uname().nodename,
            "boot_id": processes.boot_id(),
            "pid_ns": processes.inode("self", "ns/pid"),
            "init_start_ticks": rows[1]["start_ticks"] if 1 in rows else None,
            "uid": os.geteuid(),
            "python": "%d.%d.%d" % sys.version_info[:3],
        },
        "table": _table(rows, unreadable),
        "runs": replies,
        "memory": _memory(),
        "load": list(os.getloadavg()),
        "cpus": os.cpu_count(),
        "gpus": _end_gpus(gpus),
    }


def _clock() -> Dict[str, Any]:
    """Read the wall clock, the boot clock, and the clock by which the kernel dates files.

    The last is the date of a pipe that was made this moment: where it differs from the first, a library lies
    about the time, and only the kernel's agrees with the dates of files.
    """
    ends = os.pipe()
    try:
        kernel = os.fstat(ends[0]).st_mtime
    finally:
        os.close(ends[0])
        os.close(ends[1])
    return {"wall": time.time(), "boot": time.clock_gettime(CLOCK_BOOTTIME), "kernel": kernel}


def _process_clock(clock: Dict[str, Any], rows: processes.Rows) -> Dict[str, Any]:
    """Return the present in clock ticks since boot, as start ticks count them.

    Our own start is a witness: it lies a moment back. Where the boot clock says otherwise (a shifted time
    namespace, a library), our own start is the present.
    """
    hz = os.sysconf("SC_CLK_TCK")
    ticks = int(clock["boot"] * hz)
    own = rows[os.getpid()]["start_ticks"] if os.getpid() in rows else None
    sane = own is None or -2 * hz <= ticks - own <= YOUNG * hz
    kernel = clock["kernel"]
    wall = kernel if abs(kernel - clock["wall"]) > 2 else clock["wall"]
    return {"hz": hz, "ticks": ticks if sane else own, "sane": sane, "wall": wall}


def _table(rows: processes.Rows, unreadable: int) -> Dict[str, Any]:
    uid = os.geteuid()
    hidden = False
    try:
        with open("/proc/self/mountinfo") as file:
            proc = [line for line in file if line.split()[4] == "/proc"]
        option = [
            word
            for line in proc[-1:]
            for word in line.strip().replace(" ", ",").split(",")
            if "hidepid" in word
        ]
        hidden = any(word not in ("hidepid=0", "hidepid=off") for word in option)
        with open("/proc/self/status") as file:
            may = [int(line.split()[1], 16) for line in file if line.startswith("CapEff:")]
        hidden = hidden and not (may and may[0] >> CAP_SYS_PTRACE & 1)
    except OSError:
        pass
    others = sum(row["uid"] != uid for row in rows.values())
    return {
        "pids": len(rows),
        "others": others,
        "init": 1 in rows,
        "unreadable": unreadable,
        "hidden": hidden,
    }


def _reply(
    run: Dict[str, Any], saves: Dict[str, Any], rows: processes.Rows, now: Dict[str, Any]
) -> Dict[str, Any]:
    """Return one run's facts; what is odd about one run costs no other its answer."""
    try:
        return dict(_run(run, rows, now), checkpoints=_recheck(saves))
    except Exception as error:
        return {"error": type(error).__name__ + ": " + str(error)}


def _run(run: Dict[str, Any], rows: processes.Rows, now: Dict[str, Any]) -> Dict[str, Any]:
    found = processes.find(rows, run.get("process") or {}, run.get("last"), now)
    pids = [row["pid"] for row in found["processes"]]
    path = (run.get("log") or {}).get("path")
    want_log = run.get("log") or {}
    own = processes.inode("self", "ns/pid")
    ages = [(now["ticks"] - row["start_ticks"]) / now["hz"] for row in found["processes"]]
    log = run_log.log(
        path,
        pids,
        want_log.get("known"),
        inode=want_log.get("inode"),
        began=now["wall"] - max(ages) if ages else None,
        strangers=[row["pid"] for row in found["processes"] if row["pid_ns"] not in (None, own)],
        inside=bool((run.get("process") or {}).get("container")),
    )
    writers: List[int] = []
    if not pids and log["path"]:
        titled = [row["pid"] for row in found["titles"]]  # first, should the time not be enough for all
        others = titled + [
            pid for pid in rows if pid != os.getpid() and rows[pid]["argv"] and pid not in titled
        ]
        writers = run_log.writers(log["path"], others, 1.0, time.monotonic)
    titles = [
        row
        for row in found["titles"]
        if row["pid"] in writers
        or _works_at(row["pid"], run)
        or _may_have_written(row, run, log["mtime"], now)
    ]
    log["writers"] = [
        _process(dict(rows[pid], exe=processes.link(pid, "exe"), wrapper=processes.wraps(rows[pid])))
        for pid in writers[:4]
    ]
    # what was found may have ended while the rest was read
    gone = [pid for pid in pids if not _still(rows[pid])]
    return {
        "processes": [_process(row) for row in found["processes"] if row["pid"] not in gone],
        "gone": gone,
        "titles": [_process(row) for row in titles],
        "near": [_process(row) for row in found["near"]],
        "zombies": [_process(row) for row in found["zombies"]],
        "pidfile": found["pidfile"],
        "record": found["record"],
        "log": log,
    }


def _still(row: processes.Row) -> bool:
    try:
        now = processes.read_process(row["pid"])
    except OSError:
        return False
    return bool(now["start_ticks"] == row["start_ticks"]) and now["state"] not in "ZX"


def _works_at(pid: int, run: Dict[str, Any]) -> bool:
    """Whether an interpreter under a changed title shows that it belongs to the run."""
    cwd = processes.link(pid, "cwd")
    declared = (run.get("process") or {}).get("cwd")
    root = (run.get("checkpoints") or {}).get("root")
    if declared and cwd == os.path.realpath(declared):
        return True
    script = (run.get("process") or {}).get("script") or ""
    if script.startswith("/"):  # that it exists says nothing of where this process works
        script = "" if cwd != os.path.dirname(os.path.realpath(script)) else script
    if cwd and script and os.path.exists(os.path.join(cwd, script)):
        return True
    files = (run_log.open_logs(pid) or []) if root else []
    return any(one["path"].startswith(os.path.realpath(str(root)) + "/") for one in files)


def _may_have_written(
    row: processes.Row, run: Dict[str, Any], written: Optional[float], now: Dict[str, Any]
) -> bool:
    """Whether an interpreter under a changed title may have been started by an absolute path, from any directory.

    One that began after the log's last byte is another program. No other can be told from the run, and a live run must
    not be taken for a dead one: a declared `cwd` or pidfile tells them apart.
    """
    want = run.get("process") or {}
    if want.get("cwd") or not (want.get("script") or "").startswith("/"):
        return False
    if written is None or not now["sane"]:
        return True
    age = float(now["ticks"] - row["start_ticks"]) / float(now["hz"])
    return age + APART >= float(now["wall"]) - written


def _process(row: processes.Row) -> Dict[str, Any]:
    out = {key: value for key, value in row.items() if key not in ("kind", "word", "differs")}
    out["argv"] = [_text(word)[:LETTERS] for word in row["argv"][:WORDS]]
    for key in ("exe", "cwd", "why"):
        if isinstance(out.get(key), str):
            out[key] = _text(out[key])
    return out


def _text(word: str) -> str:
    return os.fsencode(word).decode("utf-8", "replace")


def _saves(want: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    if not want:
        return {"root": None, "found": [], "error": None}
    out: Dict[str, Any] = {"root": want["root"], "found": [], "error": None, "space": None}
    try:
        facts = os.statvfs(want["root"])
        out["space"] = {
            "free": facts.f_bavail * facts.f_frsize,
            "free_root": facts.f_bfree * facts.f_frsize,
            "size": facts.f_blocks * facts.f_frsize,
            "files": facts.f_files,
            "files_free": facts.f_favail,
        }
        out["found"] = completeness.candidates(
            want["root"], want["pattern"], marker=want.get("marker"), limit=CANDIDATES
        )
    except OSError as error:
        out["error"] = error.strerror
    return out


def _recheck(saves: Dict[str, Any]) -> Dict[str, Any]:
    """Check each complete checkpoint again: one that has changed is being written."""
    for one in saves["found"]:
        try:
            facts = os.stat(one["path"])
        except OSError:
            one.update(complete=False, reason="vanished during the probe")
            continue
        same = (facts.st_mtime_ns, facts.st_ino) == (one["mtime_ns"], one["inode"])
        folder = os.path.isdir(one["path"])  # a folder's facts are those of the files in it
        if one["complete"] and not folder and not (same and facts.st_size == one["size"]):
            one.update(complete=False, reason="still growing")
    return saves


def _memory() -> Dict[str, Any]:
    try:
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":", 1) for line in file)
        return {
            key: int(lines[name].split()[0]) * 1024
            for key, name in (("total", "MemTotal"), ("free", "MemAvailable"))
        }
    except (OSError, KeyError, ValueError):
        return {"total": None, "free": None}


def _start_gpus() -> "Optional[subprocess.Popen[bytes]]":
    program = shutil.which(
        "nvidia-smi", path=os.environ.get("PATH", "") + ":/usr/bin:/usr/local/bin:/usr/lib/wsl/lib"
    )
    if program is None:
        return None
    argv = [program, "--query-gpu=" + GPU_FIELDS, "--format=csv,noheader,nounits"]
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None


def _end_gpus(child: "Optional[subprocess.Popen[bytes]]") -> Dict[str, Any]:
    if child is None:
        return {"state": "no nvidia-smi", "each": []}
    try:
        text = child.communicate(timeout=GPU_SECONDS)[0]
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        try:
            child.communicate(timeout=1)
        except subprocess.TimeoutExpired:  # a driver that hangs may never let it go
            pass
        return {"state": "nvidia-smi gave no answer in %d s" % GPU_SECONDS, "each": []}
    out = []
    for line in text.decode("utf-8", "replace").splitlines()[:64]:
        field = [word.strip() for word in line.split(",")]
        if len(field) == 6 and field[0].isdigit():
            out.append(dict(zip(GPU_NAMES, field)))  # noqa: B905  (strict= is newer than 3.8)
    return {
        "state": "read" if child.returncode == 0 else "nvidia-smi exited with %d" % child.returncode,
        "each": out,
    }


if __name__ == "__main__":
    print(json.dumps(serve(json.load(sys.stdin))))
