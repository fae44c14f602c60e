"""What a job is asked to be, and what is known of it."""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from hostkit.identity import Identity


class State(StrEnum):
    """What a job is, on every launcher."""

    RUNNING = "running"
    DONE = "done"  # exit 0
    FAILED = "failed"  # another exit status, or it could not be executed
    KILLED = "killed"  # by a signal whose cause is not known
    TIMEOUT = "timeout"  # the wall limit
    CANCELLED = "cancelled"
    MEMORY = "memory"  # its memory limit, or the kernel's OOM killer
    LOST = "lost"  # gone, and nobody recorded how
    UNKNOWN = "unknown"


TERMINAL_STATES = frozenset(State) - {State.RUNNING, State.UNKNOWN}


class JobLimits(BaseModel):
    """How much a job may take; how it ends when it takes more."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    memory_bytes: int | None = Field(None, gt=0)
    cpus: int | None = Field(None, gt=0)
    wall_seconds: float | None = Field(None, gt=0)
    grace_seconds: float = Field(10.0, gt=0, description="between SIGTERM and SIGKILL")
    disk_reserve_bytes: int | None = Field(
        None, gt=0, description="it is ended when less is free at its folder"
    )


class JobSpec(BaseModel):
    """What is to run, in words of the host alone: no path of the machine that asks stands in it.

    `kind` and `name` say for people what it is; `inputs` ties it to what it depends on beyond its argv
    (hashes of harness and checkpoint), so that another input is another job.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str = Field(min_length=1)
    name: str = Field(min_length=1)
    argv: tuple[str, ...] = Field(min_length=1)
    cwd: str | None = None
    env: dict[str, str] = {}
    limits: JobLimits = JobLimits.model_construct()
    hide_gpus: bool = True
    inputs: dict[str, JsonValue] = {}

    @field_validator("argv")
    @classmethod
    def _no_zero_bytes(cls, argv: tuple[str, ...]) -> tuple[str, ...]:
        if any("\0" in word for word in argv):
            raise ValueError("an argument holds no zero byte")
        return argv

    @field_validator("env")
    @classmethod
    def _real_variables(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if not name or "=" in name or "\0" in name + value:
                raise ValueError(f"{name!r} cannot be an environment variable")
        return env

    @cached_property
    def id(self) -> str:
        """Return the first 16 hex digits of the SHA-256 of the canonical spec.

        The limits are left out: the same work with a longer wall limit is another attempt at the same job,
        and must not run beside it.
        """
        canonical = json.dumps(
            self.model_dump(mode="json", exclude={"limits"}),
            sort_keys=True,
            ensure_ascii=True,
            separators=(",", ":"),
        )
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]


class IsolationMeasure(BaseModel):
    """A measure that keeps the job out of a run's way, and whether it was applied on that host (read back there)."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    name: str
    applied: bool = Field(alias="real")
    detail: str = ""


class JobIdentity(BaseModel):
    """The processes of a job that are known: its payload, and the supervisor where its launcher has one."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    supervisor: Identity | None = None
    payload: Identity | None = None


class JobState(BaseModel):
    """What a job's folder and the host's process table say. `reason` and `evidence` go with `state`."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    host: str
    job: str
    attempt: int
    state: State
    reason: str | None = None
    evidence: tuple[str, ...] = ()
    exit: int | None = None
    signal: int | None = None
    identity: JobIdentity | None = None
    isolation_measures: tuple[IsolationMeasure, ...] = Field((), alias="levers")
    limits: JobLimits = JobLimits.model_construct()
    spec: JobSpec | None = None
    path: str
    sizes: dict[str, int] = {}
    survivors: tuple[int, ...] = ()
    claimed_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    wall_seconds: float | None = None
    cpu_seconds: float | None = None
    peak_rss_bytes: int | None = None
    attached: bool = False  # by launch: it was there before

    @property
    def attempt_id(self) -> str:
        """The id of this attempt (ID-1); a bare id means the newest one."""
        return self.job if "-" in self.job else f"{self.job}-1"

    @property
    def processes(self) -> tuple[Identity, ...]:
        """The processes that ending this job signals."""
        known = (self.identity.supervisor, self.identity.payload) if self.identity else ()
        return tuple(identity for identity in known if identity is not None)

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL_STATES

    @property
    def ok(self) -> bool:
        return self.state == State.DONE

    def applied(self, *names: str) -> bool:
        """Say whether any of these isolation measures was applied."""
        return any(measure.applied and measure.name in names for measure in self.isolation_measures)

    def document(self) -> dict[str, Any]:
        """Return the `hostkit.job/1` document."""
        return {"schema": "hostkit.job/1"} | self.model_dump(mode="json", by_alias=True)
