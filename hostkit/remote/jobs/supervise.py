"""The supervisor's life: start the payload out of everybody's way, watch it, end it when due, say how it ended.

Travels to hosts: standard library only, Python 3.8+. One thread, signals taken by waiting for them.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import time
import traceback
from typing import Any, Dict, List, Optional, Set, Tuple

from host import cgroups, priority, process
from jobs import folder, oom
from jobs import payload as jobs_payload

_WATCHED = (signal.SIGCHLD, signal.SIGTERM)
_SPARE = 32 << 10  # kept on the disk, so that the last status still fits when the payload has filled it


class Watch:
    """One attempt at a job, from claim to final status."""

    def __init__(self, path: str, spec: Dict[str, Any]) -> None:
        self.path = path
        self.spec = spec
        self.limits: Dict[str, Any] = spec.get("limits") or {}
        self.memory: int = int(self.limits.get("memory_bytes") or 0)
        self.measures: List[priority.Measure] = []
        self.payload = 0
        self.started = time.time()
        self.clock = time.monotonic()
        self.peak = 0
        self.ending: Optional[Dict[str, Any]] = None  # what we end it for, decided before any signal is sent
        self.kill_at: Optional[float] = None
        self.memory_group: Optional[cgroups.ControlGroup] = None
        self.cpu_group: Optional[cgroups.ControlGroup] = None
        self.outer = cgroups.outer_group()
        self.outer_kills = 0

    def live(self, lock: int, pipe: int) -> None:
        """Run to the end. `lock` holds the claim for as long as we live; `pipe` tells the launcher that it began."""
        try:
            self._prepare()
            error = self._start((lock, pipe))
            self._tell(pipe)
            if error is not None:
                self._finish({"state": "failed", "exit": error["exit"], "reason": error["reason"]})
                return
            self._watch()
            self._finish(self._verdict())
        except Exception as error:
            payload = process.identity(self.payload) if self.payload else None
            if payload is not None:
                os.killpg(self.payload, signal.SIGKILL)
                process.gone([payload], 10)
            self._sweep()
            trace = traceback.format_exc().splitlines()[-6:]
            self._finish(
                {"state": "failed", "reason": "the supervisor failed: %s" % error, "evidence": trace}
            )

    def _prepare(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        process.prctl(process.PR_SET_CHILD_SUBREAPER, 1)
        me = process.identity(os.getpid())
        folder.write(self.path, "identity.json", {"supervisor": me, "payload": None})
        with open(os.path.join(self.path, ".spare"), "wb") as file:
            file.write(b"\xff" * _SPARE)
        os.makedirs(os.path.join(self.path, "results"), mode=0o700, exist_ok=True)
        name = "%s-%d" % (os.path.basename(self.path), os.getpid())  # state folders may share a kernel
        if self.memory:
            self.memory_group, found = cgroups.memory_group(name, self.memory)
            self.measures.append(found)
        self.cpu_group, found = cgroups.cpu_group(name)
        self.measures.append(found)

    def _start(self, ours: Tuple[int, int]) -> Optional[Dict[str, Any]]:
        """Fork and exec the payload; return why not, or None when it runs."""
        reader, writer = os.pipe()
        supervisor = os.getpid()
        self.payload = os.fork()
        if self.payload == 0:
            for descriptor in (reader, *ours):
                os.close(descriptor)
            groups = {"memory": self.memory_group, "cpu": self.cpu_group}
            jobs_payload.become(self.path, self.spec, groups, supervisor, writer)
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            lines = [json.loads(line) for line in file.read().splitlines()]
        for line in lines:
            self.measures += line.get("levers", [])
            for controller, entered in line.get("entered", {}).items():
                if not entered:
                    self._unreal(
                        {"memory": "memory-cgroup", "cpu": "cpu-weight"}[controller], "could not be entered"
                    )
        broken = [line for line in lines if "error" in line]
        if not broken:
            folder.write(
                self.path,
                "identity.json",
                {
                    "supervisor": process.identity(supervisor),
                    "payload": process.identity(self.payload) or self._brief(),
                },
            )
            folder.write(self.path, "status.json", self._status({"state": "running"}))
            return None
        os.waitpid(self.payload, 0)
        number = broken[0]["error"]
        reason = "cannot run %s: %s" % (broken[0]["what"], os.strerror(number))
        return {"exit": 127 if number == errno.ENOENT else 126, "reason": reason}

    def _brief(self) -> Optional[Dict[str, Any]]:
        """Return the identity of a payload that has already ended, but is not yet reaped."""
        me, fields = process.identity(os.getpid()), process.stat_fields(self.payload)
        return dict(me, pid=self.payload, start_ticks=int(fields[19])) if me and fields else None

    def _tell(self, pipe: int) -> None:
        try:
            os.write(pipe, b"started\n")
        except OSError:
            pass  # the launcher went away; the job is none of its business any more
        os.close(pipe)

    def _watch(self) -> None:
        by_watchdog = bool(self.memory) and not self._real("memory-cgroup")
        if by_watchdog:
            self.measures.append(
                priority.measure("memory-watchdog", True, "resident memory of the group, four looks a second")
            )
            folder.write(self.path, "status.json", self._status({"state": "running"}))
        wall = self.limits.get("wall_seconds")
        next_look = 0.0
        while not self._payload_ended():
            now = time.monotonic()
            if self.ending is None and wall and now - self.clock >= wall:
                self._end(
                    "timeout",
                    "ended after its wall limit of %g s" % wall,
                    ["%.1f s had passed" % (now - self.clock)],
                )
            if self.kill_at is not None and now >= self.kill_at:
                os.killpg(self.payload, signal.SIGKILL)
                self.kill_at = None
            if now >= next_look:
                self._look(by_watchdog)
                next_look = now + (0.25 if by_watchdog else 1.0)
            due = [next_look - now] + ([self.clock + wall - now] if wall and self.ending is None else [])
            due += [self.kill_at - now] if self.kill_at is not None else []
            told = signal.sigtimedwait(_WATCHED, max(0.0, min(due)))
            if told is not None and told.si_signo == signal.SIGTERM:
                self._told_to_end(told.si_pid, told.si_uid)

    def _payload_ended(self) -> bool:
        """Say whether the payload is over, and reap its strays; it stays a zombie, so its number stays its own."""
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return True
            if found is None:
                return False
            if found.si_pid == self.payload:
                return True
            os.waitpid(found.si_pid, 0)

    def _told_to_end(self, pid: int, uid: int) -> None:
        asked = folder.document(self.path, "cancel.json")
        if self.ending is not None:
            return
        if asked is not None:
            at = asked.get("at")
            told = (
                time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)) if isinstance(at, (int, float)) else at
            )
            self._end("cancelled", "cancelled by %s" % asked.get("by", "hostkit"), ["asked at %s" % told])
        else:
            self._end(
                "killed",
                "its supervisor was told to end by SIGTERM, not by hostkit",
                ["sent by pid %d, uid %d" % (pid, uid)],
            )

    def _look(self, by_watchdog: bool) -> None:
        group = process.descendants(os.getpid()) if by_watchdog else set()
        held = process.resident(group) if group else 0
        if by_watchdog and held > self.memory and len(group) > 1:
            held = process.resident_exact(group)
        self.peak = max(self.peak, held)
        self.outer_kills = cgroups.kills(self.outer)
        if self.ending is not None:
            return
        if by_watchdog and held > self.memory:
            evidence = [
                "%d bytes were resident in %d processes, the limit is %d" % (held, len(group), self.memory)
            ]
            self._end("memory", "ended for passing its memory limit", evidence, grace=0)
            return
        if self._real("memory-cgroup") and self.memory_group is not None:
            count = cgroups.kills(self.memory_group.path)
            if count:  # of several processes the kernel may kill a worker, and leave the rest to wait for it
                evidence = ["the kernel counts %d killed for memory in %s" % (count, self.memory_group.path)]
                self._end(
                    "memory", "ended, since the kernel killed a part of it for want of memory", evidence
                )
                return
        reserve = self.limits.get("disk_reserve_bytes")
        if reserve:
            disk = os.statvfs(self.path)
            free = disk.f_bavail * disk.f_frsize
            if free < reserve:
                evidence = ["%d bytes are free at %s, %d are reserved" % (free, self.path, reserve)]
                self._end("killed", "ended by hostkit: the disk's reserve was reached", evidence)

    def _end(self, state: str, reason: str, evidence: List[str], grace: Optional[float] = None) -> None:
        self.ending = {"state": state, "reason": reason, "evidence": evidence}
        wait = float(self.limits.get("grace_seconds") or 10.0) if grace is None else grace
        self.kill_at = time.monotonic() + wait
        os.killpg(self.payload, signal.SIGTERM if wait else signal.SIGKILL)
        os.killpg(self.payload, signal.SIGCONT)

    def _verdict(self) -> Dict[str, Any]:
        """Reap the payload and say how it ended, by what is known and nothing else."""
        left = self._sweep()
        _, status = os.waitpid(self.payload, 0)
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        found: Dict[str, Any] = {"exit": code, "signal": number, "evidence": []}
        if left:
            found["evidence"].append("%d processes that it left behind were ended" % left)
        if self.ending is not None:
            return dict(found, **dict(self.ending, evidence=self.ending["evidence"] + found["evidence"]))
        memory = self._memory_evidence(code, number)
        if memory is not None:
            return dict(found, state="memory", reason=memory[0], evidence=found["evidence"] + [memory[1]])
        if number is not None:
            reason = "killed by signal %d (%s), cause unknown" % (number, process.signal_name(number))
            return dict(found, state="killed", reason=reason)
        if code == 0:
            return dict(found, state="done", reason="ended by itself with exit status 0")
        return dict(found, state="failed", reason="ended by itself with exit status %s" % code)

    def _memory_evidence(self, code: Optional[int], number: Optional[int]) -> Optional[Tuple[str, str]]:
        """Return the reason and what proves that memory was the cause, or None."""
        if code == 0:
            return None
        reason = "killed by the kernel for want of memory"
        if self._real("memory-cgroup") and self.memory_group is not None:
            count = cgroups.kills(self.memory_group.path)
            if count:
                return reason, "the kernel counts %d killed for memory in %s" % (
                    count,
                    self.memory_group.path,
                )
        elif number == signal.SIGKILL and cgroups.kills(self.outer) > self.outer_kills:
            return reason, "as it died, the kernel's count of memory kills in %s rose" % self.outer
        if number == signal.SIGKILL:
            said = oom.kernel_said(self.payload, self.clock)
            if said is not None:
                return reason, said
        if number in (None, signal.SIGABRT) and self._real("memory-rlimit"):
            line = oom.refused_allocation(self.path)
            if line is not None:
                return "an allocation was refused under its memory limit", line
        return None

    def _sweep(self) -> int:
        """End what the payload left running (its group first, then whatever became our child); say how many."""
        seen: Set[int] = set()
        ends = time.monotonic() + 5
        while time.monotonic() < ends:
            left = {pid: process.identity(pid) for pid in process.descendants(os.getpid()) - {self.payload}}
            if not left:
                break
            for pid in process.descendants(os.getpid()):  # again: ours before and after its identity was read
                known = left.get(pid)
                if known is not None and process.send(known, signal.SIGKILL):
                    seen.add(pid)
            self._payload_ended()
            signal.sigtimedwait((signal.SIGCHLD,), 0.02)
        return len(seen)

    def _real(self, name: str) -> bool:
        return any(found["name"] == name and found["real"] for found in self.measures)

    def _unreal(self, name: str, why: str) -> None:
        for found in self.measures:
            if found["name"] == name:
                found.update(real=False, detail=why)

    def _status(self, found: Dict[str, Any]) -> Dict[str, Any]:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        base = {
            "schema": "hostkit.job-status/1",
            "exit": None,
            "signal": None,
            "reason": None,
            "evidence": [],
            "levers": self.measures,
            "groups": [group.path for group in (self.memory_group, self.cpu_group) if group and group.path],
            "limits": self.limits,
            "started_at": self.started,
            "ended_at": None,
            "wall_seconds": round(time.monotonic() - self.clock, 3),
            "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 3),
            "peak_rss_bytes": max(usage.ru_maxrss * 1024, self.peak),
        }
        return dict(base, **found)

    def _finish(self, found: Dict[str, Any]) -> None:
        status = self._status(dict(found, ended_at=time.time()))
        for group in (self.memory_group, self.cpu_group):
            if group is not None:
                group.close()
        try:
            os.unlink(os.path.join(self.path, ".spare"))
        except OSError:
            pass  # it may not have fitted at the start
        for wait in (0.0, 1.0, 5.0):
            time.sleep(wait)
            try:
                folder.write(self.path, "status.json", status)
                return
            except OSError:
                continue
