"""Checkpoints as values: a candidate as its host showed it, what it holds, and what was staged."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from hostkit.inventory.models import Checkpoints


class Value(BaseModel):
    """Frozen; what a newer remote program says on top is passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore", from_attributes=True)


class Layout(Value):
    """What the inventory says of a run's checkpoints inside, where its trainer has a layout of its own.

    `weights` and `step` are keys, or names with dots that lead to them; `strip`: prefixes of wrappers in names.
    """

    weights: tuple[str, ...] = ()
    step: str | None = None
    strip: tuple[str, ...] = ()

    @classmethod
    def of(cls, saved: Checkpoints | None) -> Layout:
        """Return the layout that a run declares."""
        return cls() if saved is None else cls.model_validate(saved)

    def request(self) -> dict[str, Any]:
        """Return what the programs on the hosts are told of it, besides the weights."""
        return {"step": self.step, "strip": list(self.strip)}


class Candidate(Value):
    """One checkpoint in its run's folder. `reason`: why it is not complete, or a reservation beside one that is."""

    step: int
    path: str
    complete: bool = False
    reason: str | None = None
    format: str | None = None
    size: int | None = None
    mtime_ns: int | None = None
    inode: int | None = None
    dev: int | None = None
    writer: bool | None = None  # None: cannot be told there


class File(Value):
    """One file of a checkpoint, by its path below it."""

    name: str
    size: int
    mtime_ns: int


class Entry(Value):
    """One top-level key: how many tensors are below it, their bytes, or its plain value."""

    key: str
    tensors: int = 0
    bytes: int = 0
    value: Any = None


class TensorFacts(Value):
    """One tensor, by the names that lead to it."""

    path: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    stride: tuple[int, ...] | None = None  # safetensors are always contiguous, and say none
    bytes: int = 0
    storage: str = ""


class Contents(Value):
    """What one checkpoint is and holds, read on its host."""

    path: str
    complete: bool
    reason: str | None = None
    code: str | None = None  # one word for why it was not read: incomplete, layout, vanished, unreadable
    format: str | None = None
    size: int | None = None
    mtime_ns: int | None = None
    inode: int | None = None
    writer: bool | None = None
    step: int | None = Field(None, description="the step that it holds, which its name need not agree with")
    files: tuple[File, ...] = ()
    parts: tuple[str, ...] = ()  # which of them hold the model, of a folder or an index
    top: tuple[Entry, ...] = ()
    tensors: tuple[TensorFacts, ...] = ()
    tensors_left_off: int = 0
    metadata: dict[str, Any] = {}
    globals: tuple[str, ...] = ()  # what torch.load(weights_only=True) would have to be allowed
    tools: dict[str, str | None] = {}

    @property
    def identity(self) -> tuple[int | None, int | None, int | None]:
        """Size, mtime and inode: another of these, and it is another checkpoint."""
        return self.size, self.mtime_ns, self.inode

    def keys(self) -> list[str]:
        return [entry.key for entry in self.top]
