"""A job's folder, which is the truth about it: claim, identity, output, status, and what follows from them.

    <state>/jobs/<id>/spec.json      made once, whole, by whoever wins: the claim
                      identity.json  supervisor and payload: boot, pid namespace, pid, start ticks
                      out, err       what the payload wrote
                      status.json    state, exit, signal, reason, evidence, levers; by rename
                      cancel.json    that somebody asked for its end
                      results/       what the payload made

Travels to hosts: standard library only, Python 3.8+.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
from typing import Any, BinaryIO, Dict, List, Optional

from host import process

TERMINAL_STATES = ("done", "failed", "killed", "timeout", "cancelled", "memory", "lost")
_NAME = re.compile(r"[0-9a-f]{16}(?:-[1-9][0-9]{0,5})?")
MARKER = "HOSTKIT_JOB"


class JobRefused(Exception):  # noqa: N818  (an answer, not a fault)
    """The request cannot be granted; `rule` says why in one word."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(what)
        self.rule = rule


def state_folder(asked: Optional[str]) -> str:
    """Return the folder of hostkit's state on this host; the home is the account's, not a leaked $HOME."""
    if asked:
        return asked
    try:
        import pwd

        home = pwd.getpwuid(os.getuid()).pw_dir
    except (ImportError, KeyError):
        home = os.path.expanduser("~")
    return os.path.join(home, ".local", "state", "hostkit")


def folder(state: str, job: str) -> str:
    """Return the folder of job `job`, whose name is checked: it may come from a person."""
    if not _NAME.fullmatch(job):
        raise JobRefused(
            "no-such-job", "%r is no job id (16 hexadecimal digits, and -N for a later attempt)" % job
        )
    return os.path.join(state, "jobs", job)


def attempts(state: str, job: str) -> List[str]:
    """Return the claimed attempts at a job, first to last: ID, ID-2, ID-3, …"""
    found: List[str] = []
    number = 1
    while True:
        name = job if number == 1 else "%s-%d" % (job, number)
        if not os.path.exists(os.path.join(folder(state, name), "spec.json")):
            return found
        found.append(name)
        number += 1


def everything(state: str) -> List[str]:
    """Return the names of all jobs in the folder, oldest claim first."""
    try:
        names = os.listdir(os.path.join(state, "jobs"))
    except OSError:
        return []
    claimed = []
    for name in names:
        if _NAME.fullmatch(name):
            try:
                claimed.append((os.stat(os.path.join(state, "jobs", name, "spec.json")).st_mtime_ns, name))
            except OSError:
                continue
    return [name for _, name in sorted(claimed)]


def claim(path: str, spec: Dict[str, Any]) -> Optional[int]:
    """Claim a job's folder; return the descriptor that holds its lock, or None when it was claimed before.

    The file is whole and locked before it gets its name, so whoever finds it can tell a launch that goes on
    (the lock is held) from one that was cut (it is free): a kernel lock ends with its last holder.
    """
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    draft = os.path.join(path, ".claim-" + os.urandom(6).hex())
    try:
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        _remove_empty(path)
        raise
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, json.dumps(spec, sort_keys=True).encode())
        os.fsync(descriptor)
        os.link(draft, os.path.join(path, "spec.json"))
    except FileExistsError:
        os.close(descriptor)
        os.unlink(draft)
        return None
    except OSError:
        os.close(descriptor)
        os.unlink(draft)
        _remove_empty(path)
        raise
    os.unlink(draft)
    return descriptor


def _remove_empty(path: str) -> None:
    """Take back the folder of a claim that failed; another's claim in it keeps it."""
    try:
        os.rmdir(path)
    except OSError:
        pass


def claim_is_held(path: str) -> bool:
    """Say whether the launcher or the supervisor of this folder still holds its claim."""
    try:
        descriptor = os.open(os.path.join(path, "spec.json"), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def write(path: str, name: str, document: Dict[str, Any]) -> None:
    """Write a document of the folder whole or not at all."""
    draft = os.path.join(path, ".%s-%d" % (name, os.getpid()))
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        data = json.dumps(document, sort_keys=True).encode()
        while data:
            data = data[os.write(descriptor, data) :]
        os.fsync(descriptor)
        os.rename(draft, os.path.join(path, name))
    except OSError:
        os.unlink(draft)
        raise
    finally:
        os.close(descriptor)


def document(path: str, name: str) -> Optional[Dict[str, Any]]:
    """Return a document of the folder; None when it is not there or not whole."""
    try:
        with open_regular(os.path.join(path, name)) as file:
            found = json.loads(file.read(4 << 20))
    except (OSError, ValueError, RecursionError, JobRefused):
        return None
    return found if isinstance(found, dict) else None


def state(path: str) -> Dict[str, Any]:
    """Return what is known of a job: its last written status, corrected by what still lives."""
    name = os.path.basename(path)
    spec = document(path, "spec.json")
    if spec is None:
        if os.path.exists(os.path.join(path, "spec.json")):
            if claim_is_held(path):
                return _told(name, {"path": path}, "running", "starting", ["the claim is being written"])
            return _told(name, {"path": path}, "unknown", "spec.json is not readable")
        raise JobRefused("no-such-job", "there is no job %s here" % name)
    who = document(path, "identity.json")
    status = document(path, "status.json")
    base = {"spec": spec, "identity": who, "sizes": _sizes(path), "path": path}
    if status is not None and status.get("state") in TERMINAL_STATES:
        return dict(base, job=name, **status)
    base.update(
        {key: value for key, value in (status or {}).items() if key not in ("state", "reason", "evidence")}
    )
    if status is None and os.path.exists(os.path.join(path, "status.json")):
        return _told(name, base, "unknown", "status.json is not readable")
    if who is None:
        return _unborn(path, name, base)
    return _by_identity(path, name, base, who)


def _unborn(path: str, name: str, base: Dict[str, Any]) -> Dict[str, Any]:
    if os.path.exists(os.path.join(path, "identity.json")):
        return _told(name, base, "unknown", "identity.json is not readable")
    if claim_is_held(path):
        return _told(name, base, "running", "starting", ["the claim is held, the payload not yet started"])
    again = document(path, "identity.json")  # written between our two looks?
    if again is not None:
        return _by_identity(path, name, dict(base, identity=again), again)
    return _told(
        name, base, "lost", "the launch was cut before the payload started", ["nobody holds the claim"]
    )


def _by_identity(path: str, name: str, base: Dict[str, Any], who: Dict[str, Any]) -> Dict[str, Any]:
    supervisor = process.whereabouts(who["supervisor"])
    if supervisor == "elsewhere" and not claim_is_held(path):
        supervisor = (
            "gone"  # another pid namespace cannot be looked into, but a kernel lock ends with its holder
        )
    if supervisor == "elsewhere":
        return _told(
            name, base, "unknown", "it runs in another pid namespace than this look", ["the claim is held"]
        )
    if supervisor == "alive":
        return _told(
            name,
            base,
            "running",
            "supervised",
            ["supervisor %d has its recorded start" % who["supervisor"]["pid"]],
        )
    status = document(path, "status.json")  # written between our looks, by a supervisor that then ended
    if status is not None and status.get("state") in TERMINAL_STATES:
        return dict(base, job=name, **status)
    if supervisor == "rebooted":
        return _told(name, base, "lost", "the host was started anew while it ran", _boots(who))
    payload = who.get("payload")
    left = survivors(path, who)
    evidence = ["supervisor %d is gone and left no status" % who["supervisor"]["pid"]]
    if payload and process.whereabouts(payload) == "alive":
        evidence.append("the payload %d lives, without limits" % payload["pid"])
        return dict(_told(name, base, "running", "its supervisor is lost", evidence), survivors=left)
    evidence.append("the payload %s is gone" % (payload["pid"] if payload else "was not started, or"))
    if left:
        evidence.append(
            "%d processes that it started are still there: %s" % (len(left), ", ".join(map(str, left)))
        )
    return dict(
        _told(name, base, "lost", "supervisor and payload ended without a status", evidence), survivors=left
    )


def survivors(path: str, who: Dict[str, Any]) -> List[int]:
    """Return living processes that carry this job's mark; the supervisor and this look are not among them."""
    mark = ("%s=%s" % (MARKER, os.path.realpath(path))).encode()
    return [pid for pid in process.marked(mark) if pid not in (who["supervisor"]["pid"], os.getpid())]


def _boots(who: Dict[str, Any]) -> List[str]:
    return ["boot id then %s, now %s" % (who["supervisor"]["boot_id"], process.boot_id())]


def _told(
    name: str, base: Dict[str, Any], state_: str, reason: str, evidence: Optional[List[str]] = None
) -> Dict[str, Any]:
    return dict(base, job=name, state=state_, reason=reason, evidence=evidence or [], survivors=[])


def _sizes(path: str) -> Dict[str, int]:
    found = {}
    for name in ("out", "err"):
        try:
            found[name] = os.stat(os.path.join(path, name)).st_size
        except OSError:
            found[name] = 0
    return found


def tail(path: str, name: str, offset: int, limit: int) -> Dict[str, Any]:
    """Return bytes of `out` or `err` from `offset` (below zero: from the end), at most `limit`, and where they end."""
    if name not in ("out", "err"):
        raise JobRefused("no-such-file", "a job writes out and err, not %r" % name)
    try:
        with open_regular(os.path.join(path, name)) as file:
            size = os.fstat(file.fileno()).st_size
            start = max(0, size + offset) if offset < 0 else min(offset, size)
            file.seek(start)
            data = file.read(limit)
    except FileNotFoundError:
        return {"data": b"", "offset": 0, "size": 0}
    return {"data": data, "offset": start + len(data), "size": size}


def result(path: str, name: str, offset: int, limit: int) -> Dict[str, Any]:
    """Return bytes of a file below results/, and its size; a link that leads out of it is refused."""
    root = os.path.realpath(os.path.join(path, "results"))
    target = os.path.realpath(os.path.join(root, name))
    if not target.startswith(root + os.sep):
        raise JobRefused("no-such-file", "%r is not below results/" % name)
    try:
        with open_regular(target) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(offset)
            return {"data": file.read(limit), "size": size, "mtime_ns": os.fstat(file.fileno()).st_mtime_ns}
    except (FileNotFoundError, IsADirectoryError):
        raise JobRefused("no-such-file", "the job made no %r" % name) from None


def open_regular(path: str) -> BinaryIO:
    """Open a regular file for reading; anything else is refused: a fifo would block until somebody writes to it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise JobRefused("no-such-file", "%s is not a regular file" % path)
    return os.fdopen(descriptor, "rb")


def result_names(path: str, limit: int = 1000) -> List[str]:
    """Return the files below results/, as paths relative to it."""
    root = os.path.join(path, "results")
    found: List[str] = []
    for folder_, _, names in os.walk(root):
        found += [os.path.relpath(os.path.join(folder_, name), root) for name in names]
        if len(found) > limit:
            break
    return sorted(found)[:limit]
