"""Which staged checkpoints are let go: all but the newest few of a run and cut copies, never one that somebody uses.

Travels to hosts: standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import time
from typing import Any

from checkpoint import completeness
from checkpoint.formats import IncompleteError
from jobs import folder as job_folder
from transfer.staging_dir import Claim, RefusedError, StagingSlot, read_manifest

_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
ABANDONED = 86400.0  # seconds after which nobody goes on with a copy that was cut, once another one of the run is there


def prune(folder: str, newest: str, run: str, keep: int, state: str | None) -> list[str]:
    """Remove the run's staged checkpoints beyond the newest `keep`, but those in use; return what went."""
    removed = []
    for left in glob.glob(os.path.join(glob.escape(folder), ".staging", "*.going")):
        shutil.rmtree(left, ignore_errors=True)  # a removal that was cut short
    for path in prunable(folder, newest, run, keep, state):
        aside = os.path.join(folder, ".staging", os.path.basename(path) + ".going")
        try:
            os.rename(path, aside)  # at once away from its name, so that half of it is never found there
        except OSError:
            continue  # immutable, mounted, somebody else's: what was staged now is there all the same
        shutil.rmtree(aside, ignore_errors=True)
        removed.append(path)
    removed += _abandoned(folder, run, state)
    _remove_locks(folder, run)
    return removed


def _abandoned(folder: str, run: str, state: str | None) -> list[str]:
    """Remove copies of the run that were cut long ago, and what was put aside: each may be as large as a checkpoint."""
    removed = []
    ours = re.compile(r"(%s-step[0-9]+-[0-9a-f]{8})(\.old-[0-9]+)?" % re.escape(run))
    staging = os.path.join(folder, ".staging")
    for name in sorted(os.listdir(staging)) if os.path.isdir(staging) else []:
        match, path = ours.fullmatch(name), os.path.join(staging, name)
        if match is None or os.path.islink(path) or not os.path.isdir(path):
            continue
        try:
            if time.time() - _written(path) < ABANDONED or users(os.path.join(folder, match[1]), path, state):
                continue
            with Claim(StagingSlot(folder, match[1])):
                shutil.rmtree(path, ignore_errors=True)
        except (OSError, RefusedError):
            continue  # somebody copies it at this moment, or it is not ours to remove
        removed.append(path)
    return removed


def _remove_locks(folder: str, run: str) -> None:
    """Remove the run's locks that nobody holds, where nothing is on its way under their names."""
    ours = re.compile(r"(%s-step[0-9]+-[0-9a-f]{8})[.]lock" % re.escape(run))
    staging = os.path.join(folder, ".staging")
    for name in os.listdir(staging) if os.path.isdir(staging) else []:
        lock = ours.fullmatch(name)
        if lock is None:
            continue
        slot = StagingSlot(folder, lock[1])
        try:
            with Claim(slot, tries=1) as claim:
                claim.note(
                    claim.copied
                )  # as it was, where something is on its way; else the claim removes it
        except (OSError, RefusedError):
            continue  # held: somebody copies


def _written(path: str) -> float:
    """Return when the folder, or a file in it, was written last."""
    return max(os.lstat(one).st_mtime for one in (path, *completeness.payload(path)))


def prunable(folder: str, newest: str, run: str, keep: int, state: str | None) -> list[str]:
    """Return what `prune` would remove once `newest` is there."""
    older = []
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        try:
            manifest = read_manifest(os.path.join(folder, name))
            mine = manifest.get("run") == run and manifest.get("schema", "").startswith("hostkit.staged/")
            if mine and name != newest:
                order = (int(manifest["step"]), float(manifest["staged_at"]))
                older.append((order, os.path.join(folder, name)))
        except (IncompleteError, *_UNREADABLE):
            continue  # not one of ours: not ours to remove
    beyond = sorted(older, reverse=True)[max(1, keep) - 1 :]
    return [path for _, path in beyond if not users(path, path, state)]


def users(path: str, now: str, state: str | None) -> list[str]:
    """Return who uses what was staged at `path` (and lies at `now`): processes that have it open, jobs to come."""
    found = []
    # the kernel tells whole paths, whatever links or doubled slashes lead there by the name that was given
    open_at = tuple({one + "/" for given in (path, now) for one in (given, _real(given))})
    for pid in os.listdir("/proc"):
        if pid.isdigit() and int(pid) != os.getpid() and _holds(pid, open_at):
            found.append("process " + pid)
    return found + ["job " + job for job in _jobs(path, state)]


def _real(path: str) -> str:
    """Return the path with its folder resolved: the last part itself may be a link that is not ours to follow."""
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name)


def _holds(pid: str, prefixes: tuple[str, ...]) -> bool:
    try:
        if any(
            _link("/proc/%s/fd/%s" % (pid, one)).startswith(prefixes)
            for one in os.listdir("/proc/%s/fd" % pid)
        ):
            return True
        with open("/proc/%s/maps" % pid, encoding="utf-8", errors="surrogateescape") as maps:
            return any(prefix in line for line in maps for prefix in prefixes)
    except OSError:
        return False  # ended, or another user's: theirs are told by their jobs


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""  # closed by now: its others count all the same


def _jobs(path: str, state: str | None) -> list[str]:
    """Return the unfinished jobs whose spec names the path."""
    base = job_folder.state_folder(state)
    found = []
    for spec in glob.glob(os.path.join(glob.escape(base), "jobs", "*", "spec.json")):
        try:
            with job_folder.open_regular(spec) as file:
                named = _names(json.load(file), path)
        except (job_folder.JobRefused, OSError, ValueError, RecursionError):
            continue
        if named and not _ended(os.path.dirname(spec)):
            found.append(os.path.basename(os.path.dirname(spec)))
    return found


def _names(value: Any, path: str) -> bool:
    if isinstance(value, str):
        return value == path or path + "/" in value
    if isinstance(value, dict):
        return any(_names(one, path) for one in value.values())
    return isinstance(value, list) and any(_names(one, path) for one in value)


def _ended(folder: str) -> bool:
    """Whether the job is over, by its status or, where a kill or a reboot left none, by its recorded identity."""
    try:
        state = job_folder.state(folder)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, job_folder.JobRefused):
        return False
    return state["state"] in job_folder.TERMINAL_STATES and not state.get("survivors")
