"""Jobs on the hosts of an inventory: which launcher a host has, what jobs there are, which one an id means."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from hostkit.errors import HostkitError, UsageError
from hostkit.inventory.models import Inventory
from hostkit.jobs.launcher import Launcher
from hostkit.jobs.models import JobState
from hostkit.jobs.supervisor import Supervisor
from hostkit.transport.connections import Connections

MAX_HOSTS_AT_ONCE = 16
LINE_BYTES = 400  # asked for each line of a log; longer lines are cut
MAX_LOG_BYTES = 4 * 2**20
_ID = re.compile(r"[0-9a-f]{4,16}(-[1-9][0-9]*)?")


@dataclass(frozen=True)
class JobList:
    """The jobs of several hosts, and the error of each host that could not be asked."""

    jobs: tuple[JobState, ...]
    failed: dict[str, HostkitError]


@dataclass(frozen=True)
class LogEnd:
    """The last lines of a job's output. `cut`: there are more before or after them; `offset`: where they end."""

    lines: list[str]
    cut: bool
    offset: int


def launcher_of(connections: Connections, inventory: Inventory, host: str) -> Launcher:
    """Return the launcher of a host."""
    return Supervisor(connections.transport(host), inventory.hosts[host])


def job_hosts(inventory: Inventory, host: str | None) -> list[str]:
    """Return the hosts whose jobs are meant: the one named, else each that an evaluation names."""
    if host is not None:
        if host not in inventory.hosts:
            raise UsageError(f"no host is called {host!r}", hint="hosts: " + ", ".join(inventory.hosts))
        return [host]
    names = list(dict.fromkeys(evaluation.host for evaluation in inventory.evals.values()))
    if not names:
        raise UsageError("the inventory has no evaluations, so no host to ask", hint="name one with --host")
    return names


def list_jobs(connections: Connections, inventory: Inventory, hosts: list[str]) -> JobList:
    """Ask all hosts at the same time."""
    jobs: list[JobState] = []
    failed: dict[str, HostkitError] = {}
    with ThreadPoolExecutor(min(MAX_HOSTS_AT_ONCE, len(hosts))) as pool:
        replies = {host: pool.submit(launcher_of(connections, inventory, host).list_jobs) for host in hosts}
        for host, reply in replies.items():
            try:
                jobs += reply.result()
            except HostkitError as error:
                failed[host] = error
    return JobList(tuple(jobs), failed)


def check_id(text: str) -> str:
    """Return what a person gave as a job's id, if it can be one."""
    if not _ID.fullmatch(text):
        raise UsageError(
            f"{text!r} is no job id", hint="4 to 16 hexadecimal digits, and -N for an attempt; see job-list"
        )
    return text


def find_job(listed: JobList, text: str, hosts: list[str]) -> JobState:
    """Return the one job that an id, or its beginning, means. Without `-N` it is the newest attempt."""
    start, _, attempt = check_id(text).partition("-")
    matches: dict[tuple[str, str], JobState] = {}
    for job in listed.jobs:
        base = job.job.partition("-")[0]
        if base.startswith(start) and attempt in ("", str(job.attempt)):
            newest = matches.get((job.host, base))
            if newest is None or job.attempt > newest.attempt:
                matches[job.host, base] = job
    if len(matches) == 1:
        return next(iter(matches.values()))
    if matches:
        names = ", ".join(f"{job.job} on {job.host}" for job in matches.values())
        raise UsageError(f"ambiguous id {text}: {names}", hint="give more digits, or --host")
    for error in listed.failed.values():
        raise error  # it may be there: not reached is not absent
    raise UsageError(f"no job {text} on {', '.join(hosts)}", hint="`hostkit job-list` lists the jobs")


def last_lines(launcher: Launcher, job: JobState, count: int, *, file: str = "out") -> LogEnd:
    """Return the last lines of a job's `out` or `err`."""
    limit = min(count * LINE_BYTES, MAX_LOG_BYTES)
    data, end = launcher.tail(job.attempt_id, -limit, file=file, limit=limit)
    lines = re.split(r"\r?\n|\r", data.decode("utf-8", "replace"))
    lines = lines[:-1] if lines and not lines[-1] else lines
    return LogEnd(lines[-count:], len(lines) > count or end > len(data), end)
