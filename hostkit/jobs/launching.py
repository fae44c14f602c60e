"""Start a job on a host: once, whoever asks and however often."""

from __future__ import annotations

import posixpath

from hostkit.errors import RefusedError, UsageError
from hostkit.inventory.models import Host
from hostkit.jobs.asking import ask, job_state
from hostkit.jobs.headroom import Facts, Need, check_head_room
from hostkit.jobs.models import JobSpec, JobState
from hostkit.jobs.watching import cancel, inspect
from hostkit.plan import Effect, PlanStep
from hostkit.transport.base import Transport

STATE = "~/.local/state/hostkit"  # of the account, where the inventory gives no `state`


def plan_launch(host_name: str, host: Host, spec: JobSpec, *, summary: str | None = None) -> PlanStep:
    """Say what `launch` will do."""
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


def facts(transport: Transport, host: Host, paths: list[str] | None = None) -> Facts:
    """Ask what the host has left: memory, disk at `paths` (and at the job folder), CPUs, load."""
    return Facts.model_validate(ask(transport, host, "facts", paths=paths or []))


def launch(
    transport: Transport,
    host: Host,
    spec: JobSpec,
    *,
    again: bool = False,
    need: Need | None = None,
    beside_run: bool = False,
) -> JobState:
    """Start the job, and return once its payload runs (or could not be run).

    The same job that runs already, or is done, is returned with `attached`; `again` repeats a job that is
    done. One that ended otherwise gets a new attempt. Of two launches at once, one wins, both return it.

    `need` is held against the host's head-room before a start (RefusedError, 'headroom-…'). `beside_run` refuses
    a host on which no lever keeps the job's CPU use away from others ('no-levers').
    """
    if need is not None and not _there_already(transport, host, spec, again=again):
        check_head_room(facts(transport, host, list(need.disk)), need, host=transport.host)
    reply = ask(
        transport,
        host,
        "launch",
        job=spec.id,
        spec=spec.model_dump(mode="json"),
        again=again,
    )
    state = job_state(transport, reply)
    if beside_run and state.state == "running" and not state.attached and not out_of_the_way(state):
        cancel(transport, host, state.exact, by="hostkit, since no lever was real")
        raise RefusedError(
            "nothing there keeps a job's CPU use away from a run: neither nice nor a cpu group took hold",
            rule="no-levers",
            where=transport.host,
            hint="evaluate on another host, or --yes to do it all the same",
        )
    return state


def _there_already(transport: Transport, host: Host, spec: JobSpec, *, again: bool) -> bool:
    """Say whether a launch would only attach: the memory that the job holds itself is none that it lacks."""
    try:
        state = inspect(transport, host, spec.id)
    except UsageError:  # there is no such job
        return False
    return state.state in ("running", "unknown") or (state.state == "done" and not again)


def out_of_the_way(state: JobState) -> bool:
    """Say whether some lever lets a run win the CPU over this job.

    Where the kernel groups by session, nice counts only together with the session's own level.
    """
    grouped = any(
        lever.name == "autogroup" and "does not group" not in lever.detail for lever in state.levers
    )
    return state.real("cpu-weight") or (state.real("nice") and (not grouped or state.real("autogroup")))
