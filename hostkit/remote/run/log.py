"""Read the end of a run's log, by bytes and bounded, and say which log its process really writes.

Travels to hosts: standard library only, Python 3.8 or newer. Reads only; never follows, never waits.
"""

import os
import stat
from typing import Any, Dict, List, Optional, Sequence

from checkpoint.completeness import open_quietly

TAIL = 16384  # bytes that come back
REACH = 1 << 20  # how far back the beginning of an overlong last line is looked for
FDS = 4096  # descriptors of one process that are read
LOGGISH = (".log", ".out", ".err", ".txt", ".jsonl")


def open_logs(pid: int) -> Optional[List[Dict[str, Any]]]:
    """Return the regular files that a process has open for writing; None where that may not be read."""
    where = "/proc/%d/fd/" % pid
    try:
        names = sorted(os.listdir(where), key=int)[:FDS]
    except OSError:
        return None
    out = []
    for name in names:
        try:
            path, facts = os.readlink(where + name), os.stat(where + name)
            if not stat.S_ISREG(facts.st_mode) or not _writes(pid, name):
                continue
        except OSError:
            continue
        deleted = facts.st_nlink == 0
        path = path[: -len(" (deleted)")] if deleted and path.endswith(" (deleted)") else path
        here = where + name
        open_file = {
            "fd": int(name),
            "path": path,
            "deleted": deleted,
            "inode": facts.st_ino,
            "dev": facts.st_dev,
        }
        out.append(
            dict(
                open_file,
                at=here,
                size=facts.st_size,
                mtime=facts.st_mtime,
                rotated=not deleted and _moved(path, facts),
            )
        )
    return out


def _writes(pid: int, fd: str) -> bool:
    with open("/proc/%d/fdinfo/%s" % (pid, fd)) as file:
        for line in file:
            if line.startswith("flags:"):
                return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def _moved(path: str, facts: os.stat_result) -> bool:
    """Whether the name now means another file (it was rotated and made anew)."""
    try:
        now = os.stat(path)
    except OSError:
        return False
    return (now.st_dev, now.st_ino) != (facts.st_dev, facts.st_ino)


def log(
    path: Optional[str],
    pids: List[int],
    known: Optional[str] = None,
    *,
    inode: Optional[int] = None,
    began: Optional[float] = None,
    strangers: Sequence[int] = (),
    inside: bool = False,
    limit: int = TAIL,
) -> Dict[str, Any]:
    """Return the log's facts and its tail: of `path`, else of what the processes have open as a log.

    `known` is where it was found before; it is read where no process is left to ask. `inode` is which file it was
    before; `began` is when the processes began (epoch seconds). `strangers` are processes of another pid namespace,
    whose paths may mean other files than here; `inside`: `path` may be one of theirs.
    """
    held: List[Dict[str, Any]] = []
    readable = True
    for pid in pids:
        files = open_logs(pid)
        readable = readable and files is not None
        for one in files or []:
            stranger = pid in strangers
            held.append(dict(one, pid=pid, stranger=stranger, rotated=one["rotated"] and not stranger))
    logs = [one for one in held if one["fd"] in (1, 2) or one["path"].endswith(LOGGISH)]
    logs.sort(key=lambda one: (one["fd"] != 1, one["fd"] != 2, -one["mtime"]))
    out: Dict[str, Any] = {"path": path, "from": "inventory" if path else None, "held": None, "error": None}
    out.update(size=None, mtime=None, inode=None, tail="", cut=0, others=[_brief(one) for one in logs[:4]])
    if path is None and not logs and known and not pids:
        return _read(dict(out, path=known, **{"from": "remembered"}), known, limit)
    if path is None:
        if not logs:
            why = (
                "no process"
                if not pids
                else "its process has no log open"
                if readable
                else "open files are not readable"
            )
            return dict(out, error="no log is declared, and none was found: " + why)
        chosen = logs[0]
        out.update({"path": chosen["path"], "from": "open files"}, **_state(chosen))
        return _read(out, chosen["at"], limit)
    out = _read(out, path, limit)
    if pids and readable:
        if any((one["inode"], one["dev"]) == (out["inode"], out.get("dev")) for one in held):
            return dict(out, held=True, others=[])
        out["held"] = False
        moved = _moved_to(out, [one for one in held if inside or not one["stranger"]], logs, inode, began)
        if moved is not None:
            out.update(_state(moved), held=True, error=None, missing=False)
            out["renamed"] = (
                None if os.path.realpath(moved["path"]) == os.path.realpath(path) else moved["path"]
            )
            return _read(out, moved["at"], limit)
    return out


def _moved_to(
    out: Dict[str, Any],
    held: List[Dict[str, Any]],
    logs: List[Dict[str, Any]],
    inode: Optional[int],
    began: Optional[float],
) -> Optional[Dict[str, Any]]:
    """Return the open file that the processes write instead of the declared one; None where none is known.

    What somebody else writes under the declared name (tee) is the log, whatever the processes have open besides.
    """
    path = os.path.realpath(out["path"])
    folder, base = os.path.split(path)
    gone = [one for one in held if one["deleted"] or one["rotated"] or one["stranger"] or out["size"] is None]
    likely = [one for one in gone if os.path.realpath(one["path"]) == path]
    likely += [one for one in held if inode is not None and one["inode"] == inode]
    logs = [one for one in logs if one in held]
    likely += [one for one in logs if os.path.basename(one["path"]).startswith((base + ".", base + "-"))]
    if not out["size"] or (began is not None and out["mtime"] < began - 1):  # nobody writes the declared one
        named = [one for one in held if not one["deleted"]]
        beside = [one for one in named if os.path.dirname(one["path"]) == folder]
        likely += [one for one in logs if one in beside]
        likely += [one for one in named if one["fd"] in (1, 2)]
        likely += beside if len({one["path"] for one in beside}) == 1 else []
    return likely[0] if likely else None


def _brief(one: Dict[str, Any]) -> Dict[str, Any]:
    return {key: one[key] for key in ("pid", "fd", "path", "deleted", "size", "mtime")}


def _state(one: Dict[str, Any]) -> Dict[str, Any]:
    return {"deleted": one["deleted"], "rotated": one["rotated"]}


def _read(out: Dict[str, Any], at: str, limit: int) -> Dict[str, Any]:
    try:
        fd = open_quietly(at)
    except OSError as error:
        return dict(
            out, error=error.strerror, missing=isinstance(error, (FileNotFoundError, NotADirectoryError))
        )
    try:
        facts = os.fstat(fd)
        out.update(size=facts.st_size, mtime=facts.st_mtime, inode=facts.st_ino, dev=facts.st_dev)
        if not stat.S_ISREG(facts.st_mode):
            return dict(out, error="not a regular file", size=None, mtime=None)
        data = os.pread(fd, limit, max(0, facts.st_size - limit))
        inner = data.rstrip(b"\r\n")
        if facts.st_size > len(data) and b"\n" not in inner and b"\r" not in inner:
            data, out["cut"] = _long_line(fd, facts.st_size, limit)
    except OSError as error:
        return dict(out, error=error.strerror)
    finally:
        os.close(fd)
    out["begins"] = facts.st_size - len(data) > 0
    out["tail"] = data.replace(b"\0", b"").decode("utf-8", "replace")
    return out


def _long_line(fd: int, size: int, limit: int) -> "tuple[bytes, int]":
    """Return the lines before an overlong last one, its beginning and its end; and how many bytes lack."""
    begin = max(0, size - REACH)
    back = os.pread(fd, size - begin, begin)
    at = back.rfind(b"\n", 0, len(back.rstrip(b"\r\n"))) + 1
    head = back[max(0, at - limit // 4) : at + limit // 4]
    tail = back[-limit // 4 :]
    cut = len(back) - at - limit // 4 - len(tail)
    return head + b" \xe2\x80\xa6 " + tail, max(0, cut)


def writers(path: str, pids: List[int], limit: float, clock: Any) -> List[int]:
    """Return which processes have the file open for writing, as far as may be read within `limit` seconds."""
    try:
        want = os.stat(path)
    except OSError:
        return []
    end, out = clock() + limit, []
    for pid in pids:
        if clock() > end:
            break
        for one in open_logs(pid) or []:
            if (one["inode"], one["dev"]) == (want.st_ino, want.st_dev):
                out.append(pid)
                break
    return out
