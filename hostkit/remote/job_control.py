"""Jobs on a host: launch them so that they outlive the session, look at them, end them, bring files.

`serve` answers one request, {"op": "launch" | "inspect" | "poll" | "cancel" | "list" | "fetch" | "install" |
"facts", "state": folder or null, ...}. Travels to hosts: standard library only, Python 3.8+.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import select
import signal
import sys
import time
from typing import Any, Dict, List, Optional

from host import cgroups, process
from jobs import capacity, folder, supervise

_BEGIN = 15.0  # seconds that a launch waits for its supervisor's word
_CHUNK = 4 << 20


def serve(request: Dict[str, Any]) -> Dict[str, Any]:
    """Answer one request: its result, or {"refused": …} or {"failed": …} when the host said no."""
    os.umask(0o077)
    try:
        return _OPERATIONS[request["op"]](request)
    except folder.JobRefused as error:
        return {"refused": {"rule": error.rule, "what": str(error)}}
    except OSError as error:
        return {"failed": {"errno": errno.errorcode.get(error.errno or 0, "?"), "what": str(error)}}


def _state(request: Dict[str, Any]) -> str:
    return folder.state_folder(request.get("state"))


def _latest(request: Dict[str, Any]) -> str:
    """Return the folder that a job name means: its newest attempt; ID-1 is the first, ID-2 the second."""
    state, job = _state(request), str(request["job"])
    if job.endswith("-1"):
        return folder.folder(state, job[:-2])
    path = folder.folder(state, job)
    if "-" in job:
        return path
    names = folder.attempts(state, job)
    return folder.folder(state, names[-1]) if names else path


def launch(request: Dict[str, Any]) -> Dict[str, Any]:
    """Start a job, unless it runs or is done already; of two that ask at once, one starts it and both get it."""
    state, job, spec = _state(request), str(request["job"]), request["spec"]
    names = folder.attempts(state, job)
    if names:
        last = folder.state(folder.folder(state, names[-1]))
        if last["state"] in ("running", "unknown") or (last["state"] == "done" and not request.get("again")):
            return dict(_begun(last["path"]), attached=True)
        if last["state"] == "lost":
            _clear(last)
        if last.get("survivors"):
            what = "%s is lost, but processes of it live: %s" % (names[-1], last["survivors"])
            raise folder.JobRefused("survivors", what + "; cancel it first")
    doomed = capacity.ended_at_logout()
    if doomed is not None:
        raise folder.JobRefused("detach", doomed)
    number = len(names) + 1
    path = folder.folder(state, job if number == 1 else "%s-%d" % (job, number))
    whole = {"schema": "hostkit.job-spec/1", "attempt": number, "claimed_at": time.time(), "spec": spec}
    lock = folder.claim(path, whole)
    if lock is None:
        return dict(_begun(path), attached=True)
    try:
        _detach(path, spec, lock)
    finally:
        os.close(lock)  # the supervisor holds its own copy
    return dict(folder.state(path), attached=False)


def _clear(lost: Dict[str, Any]) -> None:
    """Take away the control groups that a lost supervisor could not."""
    for path in lost.get("groups") or []:
        cgroups.remove(path)


def _begun(path: str) -> Dict[str, Any]:
    """Wait until the winner of a claim has its payload's identity, so that both launchers can name it."""
    ends = time.monotonic() + _BEGIN
    while True:
        found = folder.state(path)
        who = found.get("identity") or {}
        if found["state"] != "running" or who.get("payload") or time.monotonic() > ends:
            return found
        time.sleep(0.05)


def _detach(path: str, spec: Dict[str, Any], lock: int) -> None:
    """Fork the supervisor out of this session, with none of its descriptors, and wait for its first word."""
    reader, writer = os.pipe()
    middle = os.fork()
    if middle == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                _close_all_but(lock, writer)
                os.chdir("/")
                supervise.Watch(path, spec).live(lock, writer)
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(middle, 0)
    select.select([reader], [], [], _BEGIN)
    os.close(reader)


def _close_all_but(*kept: int) -> None:
    """Put /dev/null on the three streams and close the rest: an open stream would hold the session."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:
                continue  # the descriptor of the listing itself


def inspect(request: Dict[str, Any]) -> Dict[str, Any]:
    return folder.state(_latest(request))


def poll(request: Dict[str, Any]) -> Dict[str, Any]:
    """Return the state and new output at once, or as soon as one of them changes within `hold` seconds."""
    path = _latest(request)
    offset, limit = int(request.get("offset", 0)), min(int(request.get("limit", 1 << 16)), _CHUNK)
    name = str(request.get("file", "out"))
    ends = time.monotonic() + min(float(request.get("hold", 0)), 30.0)
    while True:
        found = folder.state(path)
        part = folder.tail(path, name, offset, limit)
        if part["data"] or found["state"] != "running" or time.monotonic() >= ends:
            return dict(part, data=_text(part["data"]), job=found)
        time.sleep(0.1)


def cancel(request: Dict[str, Any]) -> Dict[str, Any]:
    """End a job by its recorded identity: by its supervisor where that lives, else its group, else its strays."""
    path = _latest(request)
    found = _begun(path)
    if found["state"] in folder.TERMINAL_STATES and not found.get("survivors"):
        return found
    if found["state"] == "unknown":
        raise folder.JobRefused(
            "no-signal", "its state is unknown (%s), so nothing is signalled" % found["reason"]
        )
    folder.write(path, "cancel.json", {"by": str(request.get("by", "hostkit")), "at": time.time()})
    who = found["identity"]
    grace = float((found["spec"]["spec"].get("limits") or {}).get("grace_seconds") or 10.0)
    lived = False
    if who is not None and process.send(who["supervisor"], signal.SIGTERM):
        process.send(who["supervisor"], signal.SIGCONT)  # a stopped one would never take the first
        if _ended(path, grace + 10):
            return folder.state(path)
        lived = _end_group(who, 0)  # the supervisor is stuck
        process.send(who["supervisor"], signal.SIGKILL)
        _ended(path, 2)
    return _end_lost(path, who, grace, lived)


def _ended(path: str, patience: float) -> bool:
    ends = time.monotonic() + patience
    while time.monotonic() < ends:
        if folder.state(path)["state"] != "running":
            return True
        time.sleep(0.05)
    return False


def _end_group(who: Dict[str, Any], grace: float) -> bool:
    """End the payload's own group; False when it is gone."""
    payload = who.get("payload")
    if not payload or not process.send(payload, signal.SIGTERM if grace else signal.SIGKILL, group=True):
        return False
    ends = time.monotonic() + grace
    while time.monotonic() < ends and process.whereabouts(payload) == "alive":
        time.sleep(0.05)
    process.send(payload, signal.SIGKILL, group=True)
    return True


def _end_lost(path: str, who: Optional[Dict[str, Any]], grace: float, lived: bool) -> Dict[str, Any]:
    """End what lives of a job without supervisor, and write the status that it could not write."""
    before = folder.state(path)
    if before["state"] in folder.TERMINAL_STATES and not before.get("survivors"):
        return before
    ended: List[Dict[str, Any]] = []
    if who is not None:
        lived = _end_group(who, grace) or lived
        known = [process.identity(pid) for pid in folder.survivors(path, who)]
        still = set(folder.survivors(path, who))  # marked before and after the identity was read
        ended = [one for one in known if one and one["pid"] in still and process.send(one, signal.SIGKILL)]
        process.gone(ended + [part for part in (who.get("payload"),) if part], 10)
    _clear(before)
    state, reason = (
        ("cancelled", "cancelled, its supervisor was lost") if lived else ("lost", before["reason"])
    )
    status: Dict[str, Any] = {key: before[key] for key in ("levers", "limits", "started_at") if key in before}
    evidence = list(before.get("evidence") or [])
    if ended:
        evidence.append("ended by cancel: %s" % ", ".join(str(one["pid"]) for one in ended))
    status.update(
        schema="hostkit.job-status/1", state=state, reason=reason, evidence=evidence, exit=None, signal=None
    )
    folder.write(path, "status.json", dict(status, ended_at=time.time()))
    return folder.state(path)


def list_jobs(request: Dict[str, Any]) -> Dict[str, Any]:
    state = _state(request)
    names = folder.everything(state)
    limit = int(request.get("limit", 200))
    return {
        "jobs": [folder.state(folder.folder(state, name)) for name in names[-limit:]],
        "of": len(names),
    }


def fetch(request: Dict[str, Any]) -> Dict[str, Any]:
    path = _latest(request)
    if request.get("name") is None:
        return {"names": folder.result_names(path)}
    part = folder.result(path, str(request["name"]), int(request.get("offset", 0)), _CHUNK)
    return dict(part, data=_text(part["data"]))


def install(request: Dict[str, Any]) -> Dict[str, Any]:
    """Write the files that follow on stdin; each is proven by its SHA-256 before it gets its name."""
    dest = str(request["dest"])
    written, kept = [], []
    for entry in request["files"]:
        data = sys.stdin.buffer.read(int(entry["size"]))
        if hashlib.sha256(data).hexdigest() != entry["sha256"]:
            raise folder.JobRefused("damaged", "%s did not arrive whole" % entry["name"])
        target = os.path.join(dest, entry["name"])
        if process.read(target, int(entry["size"]) + 1) == data:
            kept.append(entry["name"])
            continue
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        # no pid in its name: one that a kill left would block whoever gets that pid in the next container
        draft = "%s.hostkit-%s" % (target, os.urandom(8).hex())
        descriptor = os.open(
            draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, int(entry.get("mode", 0o600))
        )
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.rename(draft, target)
        except OSError:
            os.unlink(draft)
            raise
        written.append(entry["name"])
    removed = [name for name, digest in (request.get("remove") or {}).items() if _remove(dest, name, digest)]
    return {"written": written, "kept": kept, "removed": removed}


def _remove(dest: str, name: str, digest: str) -> bool:
    """Take a file away if it is still what was installed, and the folders that it leaves empty."""
    target = os.path.join(dest, name)
    try:
        with folder.open_regular(target) as file:
            if hashlib.sha256(file.read()).hexdigest() != digest:
                return False
        os.unlink(target)
        parent = os.path.dirname(name)
        while parent:
            os.rmdir(os.path.join(dest, parent))
            parent = os.path.dirname(parent)
    except folder.JobRefused:
        return False
    except OSError:
        return not os.path.lexists(target)
    return True


def facts(request: Dict[str, Any]) -> Dict[str, Any]:
    return capacity.facts([_state(request)] + [str(path) for path in request.get("paths", [])])


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


_OPERATIONS = {
    "launch": launch,
    "inspect": inspect,
    "poll": poll,
    "cancel": cancel,
    "list": list_jobs,
    "fetch": fetch,
    "install": install,
    "facts": facts,
}

if __name__ == "__main__":
    print(json.dumps(serve(json.loads(sys.stdin.buffer.readline()))))
