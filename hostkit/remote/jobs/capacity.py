"""What a host has left for a job: memory, disk, CPUs; and whether a job outlives the log-out there.

Travels to hosts: standard library only, Python 3.8+.
"""

from __future__ import annotations

import configparser
import glob
import os
import re
import time
from typing import Any, Dict, List, Optional, Set, Tuple

from host import cgroups, process


def facts(paths: List[str]) -> Dict[str, Any]:
    """Return memory, disk at each of `paths` (or what stands above it), load, CPUs, and the far clock."""
    return {
        "memory": memory(),
        "disk": {path: _disk(path) for path in paths},
        "cpus": len(os.sched_getaffinity(0)),
        "load": list(os.getloadavg()),
        "at": time.time(),
        "boot_id": process.boot_id(),
    }


def memory() -> Dict[str, Any]:
    """Return bytes in all and available: the least of what the kernel and the groups around us would give."""
    found: Dict[str, int] = {}
    for line in (process.read("/proc/meminfo") or b"").splitlines():
        words = line.split()
        if len(words) > 1 and words[0] in (b"MemTotal:", b"MemAvailable:"):
            found[words[0].decode()] = int(words[1]) * 1024
    total, available = found.get("MemTotal:", 0), found.get("MemAvailable:", 0)
    group = None
    for path, second in cgroups.groups("memory"):
        limit, room = _group_room(path, second)
        if limit is not None and room < available:
            total, available, group = min(total, limit), room, path
    return {"total": total, "available": available, "bound_by": group}


def _group_room(path: str, second: bool) -> Tuple[Optional[int], int]:
    names = ("memory.max", "memory.current") if second else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    limit, used = [(process.read(os.path.join(path, name)) or b"").strip() for name in names]
    if not limit.isdigit() or not used.isdigit() or int(limit) >= 1 << 60:
        return None, 0
    droppable = 0
    for line in (process.read(os.path.join(path, "memory.stat")) or b"").splitlines():
        if line.startswith((b"inactive_file " if second else b"total_inactive_file ")):
            droppable = int(line.split()[1])
    return int(limit), max(0, int(limit) - int(used) + droppable)


def _disk(path: str) -> Dict[str, Any]:
    while not os.path.exists(path):
        path = os.path.dirname(path) or "/"
    found = os.statvfs(path)
    return {
        "at": path,
        "free": found.f_bavail * found.f_frsize,
        "total": found.f_blocks * found.f_frsize,
        "free_inodes": found.f_favail if found.f_files else None,
    }


def ended_at_logout(root: str = "/", uid: Optional[int] = None) -> Optional[str]:
    """Say why a process started here would be ended when the session closes, or None when it would not."""
    text = (process.read(os.path.join(root, "proc/self/cgroup")) or b"").decode("utf-8", "replace")
    session = re.search(r"session-[^/\n]*\.scope", text)
    if session is None:
        return None
    settings = _logind(root)
    if settings.get("killuserprocesses", "no").lower() not in ("yes", "true", "1", "on"):
        return None
    names = _names(os.getuid() if uid is None else uid)
    if names & set(settings.get("killexcludeusers", "root").split()):
        return None
    only = set(settings.get("killonlyusers", "").split())
    if only and not names & only:
        return None
    return (
        "this login is in %s, and KillUserProcesses=yes ends all of it when the session closes; "
        "add the account to KillExcludeUsers in logind.conf" % session.group(0)
    )


def _logind(root: str) -> Dict[str, str]:
    """Return the [Login] settings as systemd would read them: files by name, /etc before /run before /usr/lib."""
    by_name: Dict[str, str] = {}
    for folder in ("usr/lib/systemd", "run/systemd", "etc/systemd"):
        for path in glob.glob(os.path.join(root, folder, "logind.conf.d", "*.conf")):
            by_name[os.path.basename(path)] = path
    main = [
        os.path.join(root, folder, "logind.conf")
        for folder in ("etc/systemd", "run/systemd", "usr/lib/systemd")
    ]
    first = [path for path in main if os.path.exists(path)][:1]
    settings: Dict[str, str] = {}
    for path in first + [by_name[name] for name in sorted(by_name)]:
        parser = configparser.ConfigParser(strict=False, interpolation=None, allow_no_value=True)
        try:
            parser.read_string((process.read(path) or b"").decode("utf-8", "replace"))
        except configparser.Error:
            continue
        if parser.has_section("Login"):
            settings.update({key: value or "" for key, value in parser.items("Login")})
    return settings


def _names(uid: int) -> Set[str]:
    found = {str(uid)} | ({"root"} if uid == 0 else set())
    try:
        import pwd

        found.add(pwd.getpwuid(uid).pw_name)
    except (ImportError, KeyError):
        pass  # an account without a name is excluded by number alone
    return found
