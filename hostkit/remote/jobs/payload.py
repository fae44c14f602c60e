"""The forked child's way to become the payload: out of the session, out of everybody's way, then exec.

Travels to hosts: standard library only, Python 3.8+.
"""

from __future__ import annotations

import errno
import json
import os
import signal
from typing import Any, Dict, NoReturn, Optional

from host import cgroups, priority, process
from jobs import folder, isolation

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def become(
    path: str,
    spec: Dict[str, Any],
    groups: Dict[str, Optional[cgroups.ControlGroup]],
    supervisor: int,
    writer: int,
) -> NoReturn:
    """Exec the payload; tell on `writer` (closed by the exec) which measures were applied, or what went wrong."""
    what = spec["argv"][0]
    try:
        os.setsid()
        dies_with_parent = process.prctl(process.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(125)  # it died before it could be heard
        limits = spec.get("limits") or {}
        entered: Dict[str, bool] = {}
        _enter(groups, "memory", entered)
        measures = isolation.apply(limits, entered.get("memory", False))
        _enter(groups, "cpu", entered)  # the slow lane last
        variables, more = isolation.environment(limits, bool(spec.get("hide_gpus", True)))
        why = "PR_SET_PDEATHSIG" if dies_with_parent else "no prctl here"
        more.append(priority.measure("dies-with-supervisor", dies_with_parent, why))
        what = spec.get("cwd") or path
        os.chdir(what)
        for number, name in ((0, "/dev/null"), (1, "out"), (2, "err")):
            flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND
            os.dup2(os.open(os.path.join(path, name), flags, 0o600), number)
        what = spec["argv"][0]
        env = environment(path, spec, variables)
        _say(writer, {"levers": measures + more, "entered": entered})
        _default_signals()
        os.execvpe(what, spec["argv"], env)  # noqa: S606  (an argv, no shell, as wanted)
    except OSError as error:
        _say(writer, {"error": error.errno, "what": what})
    except BaseException as error:
        _say(writer, {"error": errno.EINVAL, "what": "%s (%s)" % (what, error)})
    os._exit(127)


def _enter(groups: Dict[str, Optional[cgroups.ControlGroup]], name: str, entered: Dict[str, bool]) -> None:
    group = groups.get(name)
    if group is not None and group.path:
        entered[name] = group.enter()


def environment(path: str, spec: Dict[str, Any], measures: Dict[str, str]) -> Dict[str, str]:
    """Return the payload's variables: few, the same from every login; never what an ssh session leaked in."""
    env = {"PATH": _PATH, "LC_ALL": "C.UTF-8", "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}
    try:
        import pwd

        account = pwd.getpwuid(os.getuid())
        env.update(HOME=account.pw_dir, USER=account.pw_name, LOGNAME=account.pw_name)
    except (ImportError, KeyError):
        env["HOME"] = path
    env.update({str(key): str(value) for key, value in (spec.get("env") or {}).items()})
    env.update(
        {key: value for key, value in measures.items() if not key.endswith("_THREADS") or key not in env}
    )
    env[folder.MARKER] = os.path.realpath(path)
    env["HOSTKIT_RESULTS"] = os.path.join(path, "results")
    return env


def _say(writer: int, document: Dict[str, Any]) -> None:
    os.write(writer, json.dumps(document).encode() + b"\n")


def _default_signals() -> None:
    """Undo what Python and the supervisor set: a payload starts as from a plain shell."""
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                continue  # reserved by the C library
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
