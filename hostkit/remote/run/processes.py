"""Tell which processes of this host are a run: by what each argv runs, never by words found in it.

Travels to hosts: standard library only, Python 3.8 or newer. Reads /proc and nothing else.
"""

import os
import re
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

Row = Dict[str, Any]
Rows = Dict[int, Row]
Named = Callable[[str, Row], bool]

PYTHON = re.compile(r"\.?(python|pypy|graalpy)[\d.]*[a-z]?(-(dbg|debug|intel64|c|wrapped))?")
SHELL = re.compile(r"-?(ba|da|z|k|mk|a|fi)?sh")
# what starts a script's workers as children of its own
LAUNCHERS = set("torchrun accelerate deepspeed horovodrun mpirun mpiexec orterun prterun srun".split())
LAUNCHER_MODULES = re.compile(
    r"torch\.distributed\.(run|launch|launcher.*|elastic.*)|accelerate\.commands\..+|deepspeed\.launcher\..+"
)
# modules, and scripts, that run the script named after them inside their own process
CARRIERS = set(
    "pdb cProfile profile trace debugpy viztracer scalene memray coverage ipdb ipython ipython3 kernprof".split()
)
# on this host; the processes are those of all machines
WORKER_COUNT = re.compile(r"--(?:nproc[-_]per[-_]node|num[-_]gpus|num[-_]processes)(?:=(\d+))?")
MACHINES = ("--num_machines", "--num-machines")
PID_MAX = 4194304
NEAR_LIMIT = 8
CGROUP_LETTERS = 400
MENTIONS = "only mentions it"


def table() -> Tuple[Rows, int]:
    """Return all processes by pid, and how many could not be read."""
    rows: Rows = {}
    unreadable = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                rows[int(name)] = read_process(int(name))
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended meanwhile
            except OSError:
                unreadable += 1
    return rows, unreadable


def read_process(pid: int) -> Row:
    """Return one process: its place in the tree, state, clock ticks (proc(5), stat), argv."""
    where = "/proc/%d/" % pid
    with open(where + "stat", "rb") as file:
        raw = file.read()
    with open(where + "cmdline", "rb") as file:
        argv = file.read(65536)
    begin, end = raw.index(b"("), raw.rindex(b")")  # the name may hold spaces and parentheses
    field = raw[end + 2 :].split()
    return {
        "pid": pid,
        "comm": raw[begin + 1 : end].decode("utf-8", "replace"),
        "state": field[0].decode(),
        "ppid": int(field[1]),
        "session": int(field[3]),
        "cpu_ticks": int(field[11]) + int(field[12]),
        "threads": int(field[17]),
        "start_ticks": int(field[19]),
        "uid": os.stat(where).st_uid,
        "argv": [os.fsdecode(word) for word in argv.rstrip(b"\0").split(b"\0")] if argv.strip(b"\0") else [],
    }


def link(pid: int, name: str) -> Optional[str]:
    """Return where /proc/PID/NAME points; None where that may not be read."""
    try:
        return os.readlink("/proc/%d/%s" % (pid, name))
    except OSError:
        return None


def inode(pid: Any, name: str) -> Optional[int]:
    try:
        return os.stat("/proc/%s/%s" % (pid, name)).st_ino
    except OSError:
        return None


def cgroup(pid: int) -> Optional[str]:
    """Return a process's longest cgroup path, which names its container; None where that may not be read."""
    try:
        with open("/proc/%d/cgroup" % pid) as file:
            paths = [line.rstrip("\n").split(":", 2)[-1] for line in file]
    except (OSError, ValueError):
        return None
    return max(paths, key=len, default="")[:CGROUP_LETTERS]


def ancestors(rows: Rows, pid: int) -> List[int]:
    """Return the pids above a process, nearest first."""
    out: List[int] = []
    while pid in rows and rows[pid]["ppid"] in rows and rows[pid]["ppid"] not in out:
        pid = rows[pid]["ppid"]
        out.append(pid)
    return out


def runs_what(argv: List[str], exe: Optional[str]) -> Tuple[str, str, List[str]]:
    """Say what an argv runs: (kind, its word, the words after it).

    kind: script or module (of an interpreter), code (-c, standard input), program (anything else), title
    (an interpreter whose argv was written over), none (no argv: a kernel thread or a zombie).
    """
    if not argv:
        return "none", "", []
    name = os.path.basename(argv[0])
    base = os.path.basename((exe or "").replace(" (deleted)", ""))
    if PYTHON.fullmatch(name):
        return _python(argv[1:])
    if SHELL.fullmatch(name):
        return _shell(argv[1:])
    if PYTHON.fullmatch(base):  # started under another name, or the title was changed
        kind, word, rest = _python(argv[1:])
        return (kind, word, rest) if kind in ("script", "module") else ("title", argv[0], [])
    return "program", argv[0], argv[1:]


def _python(words: List[str]) -> Tuple[str, str, List[str]]:
    """Read python's own options up to the script or module (python(1))."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        option = words[at]
        at += 1
        if option == "--":
            break
        if option.startswith("--"):
            at += option == "--check-hash-based-pycs"
            continue
        for place, letter in enumerate(option[1:], 2):
            if letter in "cmWX":
                value = option[place:]
                if not value:
                    value = words[at] if at < len(words) else ""
                    at += 1
                if letter == "c":
                    return "code", "", words[at:]
                if letter == "m":
                    return "module", value, words[at:]
                break
    if at >= len(words) or words[at] == "-":
        return "code", "", words[at:]
    return "script", words[at], words[at + 1 :]


def _shell(words: List[str]) -> Tuple[str, str, List[str]]:
    at = 0
    while at < len(words) and words[at][:1] in ("-", "+") and words[at] not in ("-", "--"):
        option = words[at]
        at += 1
        if option in ("--rcfile", "--init-file"):
            at += 1
        elif not option.startswith("--"):
            if "c" in option:
                return "code", "", words[at:]
            at += option[-1] in "oO"
    at += at < len(words) and words[at] in ("-", "--")
    return ("script", words[at], words[at + 1 :]) if at < len(words) else ("code", "", [])


class Wanted:
    """What the inventory says of a run's process, and whether a row is it."""

    def __init__(self, process: Dict[str, Any]) -> None:
        self.script: Optional[str] = process.get("script")
        self.module: Optional[str] = process.get("module")
        self.pidfile: Optional[str] = process.get("pidfile")
        self.args: List[str] = list(process.get("args") or [])
        self.cwd: Optional[str] = process.get("cwd")

    def names(self, word: str, row: Row) -> bool:
        """Whether a script's word in an argv is the declared script."""
        if not self.script:
            return False
        if "/" not in self.script:
            return os.path.basename(word) == self.script
        if not self.script.startswith("/"):
            tail = os.path.normpath(self.script).split("/")
            return os.path.normpath(word).split("/")[-len(tail) :] == tail
        cwd = "/" if word.startswith("/") else link(row["pid"], "cwd")
        if cwd is None:
            row["doubt"] = os.path.basename(word) == os.path.basename(self.script)
            return False
        full = os.path.normpath(os.path.join(cwd, word))
        return full == os.path.normpath(self.script) or os.path.realpath(full) == os.path.realpath(
            self.script
        )

    def role(self, row: Row) -> Optional[str]:
        """Return trainer, launcher, title (may be it: an interpreter under a changed title) or None."""
        argv = row["argv"]
        name = os.path.basename(argv[0]) if argv else ""
        exe = None if not argv or PYTHON.fullmatch(name) or SHELL.fullmatch(name) else link(row["pid"], "exe")
        kind, word, rest = runs_what(argv, exe)
        row["kind"], row["word"] = kind, word
        if kind in ("title", "none"):
            return "title" if kind == "title" else None
        launches = kind == "module" and LAUNCHER_MODULES.fullmatch(word) is not None
        launches = launches or (kind in ("script", "program") and os.path.basename(word) in LAUNCHERS)
        if kind == "module" and word == self.module:
            fits = True
        elif (kind == "module" and word in CARRIERS) or (
            kind == "script" and os.path.basename(word) in CARRIERS and not self.names(word, row)
        ):
            fits = any(self.names(one, row) for one in rest) or self._module_in(rest)
        elif kind == "script":
            fits = self.names(word, row)
        elif kind == "program":
            fits = self.names(word, row) and (exe is None or self.names(exe.replace(" (deleted)", ""), row))
        else:
            fits = False
        if fits:
            return "trainer" if self._args(rest, row) else None
        if launches and (any(self.names(one, row) for one in rest) or self._module_in(rest)):
            return "launcher" if self._args(rest, row) else None
        return None

    def _module_in(self, rest: List[str]) -> bool:
        return bool(self.module) and any(
            one in ("-m", "--module") and rest[at + 1 : at + 2] == [self.module]
            for at, one in enumerate(rest)
        )

    def _args(self, rest: List[str], row: Row) -> bool:
        lacking = [one for one in self.args if one not in _words(rest)]
        if lacking:
            row["differs"] = "runs %s, but its args lack %s" % (self.script or self.module, " ".join(lacking))
        return not lacking

    def place(self, row: Row) -> Optional[bool]:
        """Whether it works in the declared directory; None: that cannot be read."""
        if not self.cwd:
            return True
        here = link(row["pid"], "cwd")
        return None if here is None else here == os.path.realpath(self.cwd)


def _words(rest: List[str]) -> Set[str]:
    """Return the words of an argv, an option and its value both as two words and as `--option=value`."""
    out = set(rest)
    for at, one in enumerate(rest):
        if one.startswith("-"):
            out.update(one.split("=", 1))
            out.update("%s=%s" % (one, value) for value in rest[at + 1 : at + 2])
    return out


def find(
    rows: Rows, process: Dict[str, Any], last: Optional[Dict[str, Any]], now: Dict[str, float]
) -> Dict[str, Any]:
    """Return the processes of one run, those that may be, and those that only mention it.

    `last` is the identity (and exe) that was seen before; `now` = {"wall", "ticks", "hz"} at this moment.
    """
    want = Wanted(process)
    rows = {pid: dict(row) for pid, row in rows.items()}  # what is noted in a row is about this run alone
    mine: Set[int] = {os.getpid(), *ancestors(rows, os.getpid())}
    found: Rows = {}
    titles: List[Row] = []
    near: List[Row] = []
    for pid, row in rows.items():
        if pid in mine or row["state"] in "ZX":
            continue
        role = want.role(row)
        if role == "title":
            titles.append(row)
        elif role:
            placed = want.place(row)
            if placed is None:
                near.append(dict(row, why="cannot read its working directory", doubt=True))
            elif placed:
                found[pid] = dict(row, role=role, how="argv")
            else:
                where = (want.script or want.module, link(pid, "cwd"), want.cwd)
                why = "runs %s, but works in %s, not in %s" % where
                near.append(dict(row, why=why, doubt=False))
        elif row.get("differs"):
            near.append(dict(row, why=row["differs"], doubt=False))
        elif row.get("doubt"):
            near.append(dict(row, why="cannot read its working directory", doubt=True))
        elif _mentions(want, row):
            near.append(dict(row, why=MENTIONS, doubt=False))
    pidfile = _pidfile(want.pidfile, rows, mine, now) if want.pidfile else None
    if not found and pidfile and pidfile["valid"]:
        _take(found, rows, rows[pidfile["pid"]], want, mine)
        if not found:
            pidfile.update(
                valid=False, reason="process %d is only a wrapper; no program lives below it" % pidfile["pid"]
            )
    record = _record(last, rows)
    if not found and record and record["state"] == "same" and record["pid"] not in mine:
        if link(record["pid"], "exe") in (None, record["exe"]):
            found[record["pid"]] = dict(rows[record["pid"]], role="trainer", how="record")
    _tree(found, rows)
    for row in found.values():
        row.update(_more(row, rows))
    return {
        "processes": [found[pid] for pid in sorted(found, key=lambda pid: (_ROLES[found[pid]["role"]], pid))],
        "titles": titles,
        "near": sorted(near, key=_nearest)[:NEAR_LIMIT],
        "zombies": _zombies(rows, want, record),
        "pidfile": pidfile,
        "record": record,
    }


def _nearest(row: Row) -> Tuple[bool, bool]:
    return not row["doubt"], row["why"] == MENTIONS


_ROLES = {"trainer": 0, "worker": 1, "launcher": 2, "helper": 3}


def _mentions(want: Wanted, row: Row) -> bool:
    word = os.path.basename(want.script or "") or want.module
    return bool(word) and any(word in one for one in row["argv"])


# these start the run and wait for it, or hold its log, and are not it
WRAPPERS = set(
    "sudo timeout nohup nice ionice env screen tmux setsid stdbuf time ssh su runuser doas script sleep tee tail cat "
    "logger ts systemd-cat rotatelogs multilog svlogd conmon "
    "lxc-attach pct strace flock tini dumb-init docker-init catatonit make xargs watch uv conda mamba micromamba "
    "poetry pipenv systemd-run systemd-inhibit start-stop-daemon unbuffer".split()
)


def wraps(row: Row) -> bool:
    """Whether a process only starts others and waits for them, or holds a log open, by its own name."""
    name = os.path.basename((row["argv"] or [""])[0])
    return bool(SHELL.fullmatch(name)) or name in WRAPPERS or name.startswith("tmux")


def _take(found: Rows, rows: Rows, row: Row, want: Wanted, mine: Set[int]) -> None:
    """Take the process that a pidfile names, or what lives below it where that is a wrapper."""
    below = [one for one in rows.values() if row["pid"] in [one["pid"], *ancestors(rows, one["pid"])]]
    for one in sorted(below, key=lambda one: one["start_ticks"]):
        kind, word, _ = runs_what(one["argv"], link(one["pid"], "exe"))
        name = os.path.basename((one["argv"] or [""])[0])
        wrapper = SHELL.fullmatch(name) or (kind in ("none", "code") and not PYTHON.fullmatch(name))
        wrapper = wrapper or (kind in ("program", "script") and os.path.basename(word) in WRAPPERS)
        if one["state"] in "ZX" or one["pid"] in mine or wrapper or not want.place(one):
            continue
        if kind != "title" and not set(want.args) <= _words(one["argv"]):
            continue
        found[one["pid"]] = dict(one, role="trainer", how="pidfile")
        return


def _pidfile(path: str, rows: Rows, mine: Set[int], now: Dict[str, float]) -> Dict[str, Any]:
    """Read a pidfile and say whether its number can be the run; the number is never passed to a kill."""
    out: Dict[str, Any] = {"path": path, "text": None, "valid": False, "pid": None, "reason": None}
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            raw = file.read(65)
            written = os.fstat(file.fileno()).st_mtime
    except OSError as error:
        return dict(out, reason="cannot be read: %s" % error.strerror)
    out["text"] = raw.decode("utf-8", "replace")
    if not re.fullmatch(rb"[1-9]\d{0,7}\s*", raw) or int(raw) > PID_MAX:
        return dict(out, reason="holds no process id")
    pid = out["pid"] = int(raw)
    row = rows.get(pid)
    if pid == 1 or pid in mine:
        return dict(
            out, reason="process 1 is init, in every container" if pid == 1 else "that is hostkit's own"
        )
    if row is None:
        return dict(out, reason="no process %d in this pid namespace" % pid)
    if row["state"] in "ZX" or not row["argv"]:
        ended = row["state"] in "ZX"
        return dict(out, reason="process %d %s" % (pid, "is a zombie" if ended else "is a kernel thread"))
    started = now["wall"] - (now["ticks"] - row["start_ticks"]) / now["hz"]
    if started > written + 5:
        return dict(
            out, reason="process %d started after the file was written: the number was given anew" % pid
        )
    return dict(out, valid=True)


def _record(last: Optional[Dict[str, Any]], rows: Rows) -> Optional[Dict[str, Any]]:
    """Say what has become of the process that was seen before."""
    if not last:
        return None
    row = rows.get(last["pid"])
    out = {"pid": last["pid"], "exe": last.get("exe"), "state": "gone"}
    known = {inode("self", "ns/pid"), inode(last["pid"], "ns/pid")}  # it may live in a container of this host
    if last["boot_id"] != boot_id() or last["pid_ns"] not in known:
        out["state"] = "other boot"
    elif row is not None and row["start_ticks"] != last["start_ticks"]:
        out["state"] = "reused"
    elif row is not None:
        out["state"] = "zombie" if row["state"] in "ZX" else "same"
    return out


def _tree(found: Rows, rows: Rows) -> None:
    """Give each found process its root (the topmost of the run above it), and tell workers from helpers."""
    for pid, row in found.items():
        above = [one for one in ancestors(rows, pid) if one in found]
        row["root"] = above[-1] if above else pid
        if row["role"] == "trainer" and above:
            row["role"] = "worker" if found[above[0]]["role"] == "launcher" else "helper"


def _more(row: Row, rows: Rows) -> Dict[str, Any]:
    below = [one for one in rows.values() if one["ppid"] == row["pid"]]
    expects = None
    if row["role"] == "launcher":
        for at, word in enumerate(row["argv"][1:], 1):
            match = WORKER_COUNT.fullmatch(word)
            number = match and (match.group(1) or "".join(row["argv"][at + 1 : at + 2]))
            if number and number.isdigit() and not any(one.startswith(MACHINES) for one in row["argv"]):
                expects = int(number)
    return {
        "exe": link(row["pid"], "exe"),
        "cwd": link(row["pid"], "cwd"),
        "pid_ns": inode(row["pid"], "ns/pid"),
        "cgroup": cgroup(row["pid"]),
        "children": sum(one["state"] not in "ZX" for one in below),
        "spawned": sum(any("spawn_main" in word for word in one["argv"]) for one in below),
        "zombies": sum(one["state"] in "ZX" for one in below),
        "expects": expects,
    }


def _zombies(rows: Rows, want: Wanted, record: Optional[Dict[str, Any]]) -> List[Row]:
    """Return zombies that may have been the run: the one seen before, or one named as its script or python."""
    out = []
    for row in rows.values():
        known = record and record["state"] == "zombie" and row["pid"] == record["pid"]
        named = want.script and row["comm"] == os.path.basename(want.script)[:15]
        if row["state"] in "ZX" and (known or named or PYTHON.fullmatch(row["comm"])):
            out.append(row)
    return out[:NEAR_LIMIT]


def boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return "unknown"
