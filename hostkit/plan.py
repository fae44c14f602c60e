"""What a command will do, step by step and host by host, said before it is done (`hostkit.plan/1`).

The same object is printed by `--dry-run`, checked by the guard, executed and archived.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict

from hostkit.identity import Identity

EffectKind = Literal["reads", "writes", "spawns", "signals"]


class Limits(BaseModel):
    """What a spawned process may take; None: no limit of ours."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    memory_bytes: int | None = None
    cpus: int | None = None
    wall_seconds: float | None = None


class Effect(BaseModel):
    """One thing that a step does to a host. A write is to `path` and everything below it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: EffectKind
    host: str
    path: str | None = None
    bytes: int | None = None
    argv: tuple[str, ...] | None = None
    limits: Limits | None = None
    gpus: tuple[int, ...] | Literal["none", "any"] = "none"
    identity: Identity | None = None

    @classmethod
    def reads(cls, host: str, path: str, *, size: int | None = None) -> Self:
        """Say that `path` is read (`size` bytes, where known)."""
        return cls(kind="reads", host=host, path=path, bytes=size)

    @classmethod
    def writes(cls, host: str, path: str, *, size: int | None = None) -> Self:
        """Say that `path`, or something below it, is written (`size` bytes, where known)."""
        return cls(kind="writes", host=host, path=path, bytes=size)

    @classmethod
    def spawns(
        cls,
        host: str,
        argv: list[str],
        *,
        memory_bytes: int | None = None,
        cpus: int | None = None,
        wall_seconds: float | None = None,
        gpus: tuple[int, ...] | Literal["none", "any"] = "none",
    ) -> Self:
        """Say that a process is left running, with its limits and the GPUs that it may see."""
        limits = Limits(memory_bytes=memory_bytes, cpus=cpus, wall_seconds=wall_seconds)
        return cls(kind="spawns", host=host, argv=tuple(argv), limits=limits, gpus=gpus)

    @classmethod
    def signals(cls, host: str, identity: Identity) -> Self:
        """Say that this one process (with its group) is signalled."""
        return cls(kind="signals", host=host, identity=identity)


class PlanStep(BaseModel):
    """One step: its name, where it acts, what it does in words, and its effects."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    host: str
    summary: str
    effects: tuple[Effect, ...] = ()


class Plan(BaseModel):
    """The steps of one command, in order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    steps: tuple[PlanStep, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the `hostkit.plan/1` document, without fields that say nothing."""
        return {"schema": "hostkit.plan/1"} | self.model_dump(mode="json", exclude_none=True)

    def effects(self) -> list[tuple[PlanStep, Effect]]:
        """Return every effect with the step that it belongs to."""
        return [(step, effect) for step in self.steps for effect in step.effects]
