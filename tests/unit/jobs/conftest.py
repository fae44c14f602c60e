"""Jobs on this machine, over the local transport; whatever a test leaves running is ended by its own record."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from hostkit import jobs
from hostkit.inventory.models import Host, Inventory
from hostkit.transport.base import Transport
from hostkit.transport.connections import Connections

T = TypeVar("T")


@dataclass
class Bench:
    """A host with an empty state folder, and short words for what tests do there."""

    transport: Transport
    host: Host
    state: Path

    @property
    def launcher(self) -> jobs.Launcher:
        return jobs.Supervisor(self.transport, self.host, hold=0.5)

    def spec(self, code: str, *arguments: str, name: str = "test", **fields: Any) -> jobs.JobSpec:
        argv = (sys.executable, "-c", code, *arguments)
        return jobs.JobSpec(kind="test", name=name, argv=argv, **fields)

    def launch(self, spec: jobs.JobSpec, **options: Any) -> jobs.JobState:
        return jobs.launch(self.launcher, spec, **options)

    def run(self, spec: jobs.JobSpec, **options: Any) -> jobs.JobState:
        return self.wait(self.launch(spec, **options).job)

    def wait(self, job: str) -> jobs.JobState:
        state = self.launcher.follow(job, timeout=120)
        assert state.terminal, state
        return state

    def inspect(self, job: str) -> jobs.JobState:
        return self.launcher.inspect(job)

    def out(self, job: str, file: str = "out") -> str:
        return self.launcher.tail(job, file=file)[0].decode()

    def wait_for_output(self, job: str, word: str) -> str:
        return until(lambda: text if word in (text := self.out(job)) else None, f"{word!r} in the output")


def until(look: Callable[[], T | None], what: str, patience: float = 100) -> T:
    """Wait for a condition. Jobs have the lowest priority: where the machine is busy, they take their time."""
    ends = time.monotonic() + patience
    while not (found := look()):
        assert time.monotonic() < ends, f"waited in vain for {what}"
        time.sleep(0.02)
    return found


@pytest.fixture(scope="session")
def waiting() -> Callable[..., Any]:
    return until


# The interpreter that plays the host's; an older one can be tried with it.
PYTHON = os.environ.get("HOSTKIT_TEST_PYTHON", sys.executable)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    yield from _bench(tmp_path / "state", PYTHON)


@pytest.fixture
def bench_without_groups(tmp_path: Path) -> Iterator[Bench]:
    """Give a host that shows its processes no control groups, as a container does."""
    wrapper = tmp_path / "python"
    flags = "-m" if os.geteuid() == 0 else "-rm"
    hide = 'umount -R /sys/fs/cgroup 2>/dev/null; exec "$0" "$@"'
    wrapper.write_text(f"#!/bin/sh\nexec unshare {flags} sh -c '{hide}' {PYTHON} \"$@\"\n")
    wrapper.chmod(0o755)
    tried = subprocess.run([str(wrapper), "-c", ""], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"no namespaces here: {tried.stderr.decode().strip()}")
    yield from _bench(tmp_path / "state", str(wrapper))


def _bench(state: Path, python: str) -> Iterator[Bench]:
    host = Host.model_validate({"local": True, "python": python, "state": str(state)})
    inventory = Inventory.model_validate({"hostkit": 1, "archive": "/nowhere", "hosts": {"here": host}})
    with Connections(inventory, here="here") as connections:
        bench = Bench(connections.transport("here"), host, state)
        yield bench
        for job in bench.launcher.list_jobs():
            if job.state == "running" or job.survivors:
                bench.launcher.cancel(job.job)
