"""What every way to launch jobs offers, and the rules that hold for a launch whichever way it is."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import Protocol

from hostkit.errors import RefusedError, UsageError
from hostkit.inventory.models import Host
from hostkit.jobs.headroom import Facts, Need, check_head_room
from hostkit.jobs.models import JobSpec, JobState, State
from hostkit.plan import Effect, PlanStep

STATE = "~/.local/state/hostkit"  # of the account, where the inventory gives no `state`

Progress = Callable[[JobState, bytes], None]


class Launcher(Protocol):
    """Starts jobs on one host, follows them and ends them. `job`: an id, or ID-N for its Nth attempt.

    A state comes with what it rests on: `reason`, `evidence`, exit status or signal, the limits as applied.
    A job that is not there is a UsageError; a host that cannot be asked raises what its transport raises.
    """

    @property
    def host(self) -> str:
        """The inventory name of the host."""
        ...

    def start(self, spec: JobSpec, *, again: bool = False) -> JobState:
        """Start the job, and return once its payload runs (or could not be run).

        The same job that runs already, or is done, is returned with `attached`; `again` repeats one that is done.
        One that ended otherwise gets a new attempt. Of two launches at once, one wins, both return it.
        """
        ...

    def inspect(self, job: str) -> JobState:
        """Return what is known of a job now."""
        ...

    def follow(
        self, job: str, *, timeout: float | None = None, progress: Progress | None = None, offset: int = 0
    ) -> JobState:
        """Wait for a job's end, and return its state; still running when `timeout` seconds passed first.

        `progress` gets each state with the new bytes of its output, from `offset` on. A lost connection is tried
        again for some minutes: the job does not depend on being watched.
        """
        ...

    def cancel(self, job: str, *, by: str = "hostkit") -> JobState:
        """End a job, and return how it ended; one that has ended is left as it is.

        Only processes whose identity is proven are signalled; a job whose state is unknown is not.
        """
        ...

    def list_jobs(self, *, limit: int = 200) -> list[JobState]:
        """Return the newest jobs of the host, oldest first."""
        ...

    def tail(
        self, job: str, offset: int = -65536, *, file: str = "out", limit: int = 65536
    ) -> tuple[bytes, int]:
        """Return at most `limit` bytes of `out` or `err` from `offset` (negative: from the end), and their end."""
        ...

    def result_names(self, job: str) -> list[str]:
        """Return the names of the files in the job's results/."""
        ...

    def fetch(self, job: str, name: str, *, limit: int = 256 * 2**20) -> bytes:
        """Return a file of results/; one that changes meanwhile, or is larger than `limit`, is a DataError."""
        ...

    def facts(self, paths: list[str] | None = None) -> Facts:
        """Return what the host has left: memory, disk at `paths` and at the job folder, CPUs, load."""
        ...


def plan_launch(host_name: str, host: Host, spec: JobSpec, *, summary: str | None = None) -> PlanStep:
    """Return the step of a plan that `launch` carries out."""
    folder = posixpath.join(host.state or STATE, "jobs", spec.id)
    return PlanStep(
        name="launch",
        host=host_name,
        summary=summary or f"start {spec.kind} {spec.name} as job {spec.id}",
        effects=(
            Effect.writes(host_name, folder),
            Effect.spawns(
                host_name,
                list(spec.argv),
                memory_bytes=spec.limits.memory_bytes,
                cpus=spec.limits.cpus,
                wall_seconds=spec.limits.wall_seconds,
                gpus="none" if spec.hide_gpus else "any",
            ),
        ),
    )


def launch(
    launcher: Launcher,
    spec: JobSpec,
    *,
    again: bool = False,
    need: Need | None = None,
    beside_run: bool = False,
) -> JobState:
    """Start a job as `Launcher.start` does, where the host has room for it.

    `need` is held against the host's head-room before a start (RefusedError, 'headroom-…'). `beside_run` refuses
    a host where nothing lowers the job's CPU priority below a run's ('no-levers').
    """
    if need is not None and not _would_attach(launcher, spec, again=again):
        check_head_room(launcher.facts(list(need.disk)), need, host=launcher.host)
    state = launcher.start(spec, again=again)
    if beside_run and state.state is State.RUNNING and not state.attached and not lowered_priority(state):
        launcher.cancel(state.attempt_id, by="hostkit: no isolation measure could be applied")
        raise RefusedError(
            "no CPU isolation beside a run: neither nice nor a CPU cgroup could be applied",
            rule="no-levers",
            where=launcher.host,
            hint="evaluate on another host, or --yes to start it anyway",
        )
    return state


def _would_attach(launcher: Launcher, spec: JobSpec, *, again: bool) -> bool:
    """Say whether a launch would only attach: the memory that the job itself holds is not missing."""
    try:
        state = launcher.inspect(spec.id).state
    except UsageError:  # there is no such job
        return False
    return state in (State.RUNNING, State.UNKNOWN) or (state is State.DONE and not again)


def lowered_priority(state: JobState) -> bool:
    """Say whether some isolation measure lets a run win the CPU over this job.

    Where the kernel groups by session, nice counts only together with the session's own level.
    """
    grouped = any(
        measure.name == "autogroup" and "does not group" not in measure.detail
        for measure in state.isolation_measures
    )
    return state.applied("cpu-weight") or (
        state.applied("nice") and (not grouped or state.applied("autogroup"))
    )
