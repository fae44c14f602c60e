"""Whether a host has memory and disk for a job; a launch without them is refused, with numbers."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field

from hostkit.errors import RefusedError
from hostkit.formatting import size

GIB = 2**30


class Memory(BaseModel):
    """Memory of a host in bytes; `bound_by`: the control group that leaves less than the machine has."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    total: int
    available: int
    bound_by: str | None = None


class Disk(BaseModel):
    """Space of the file system that `at`, or what stands above it, is on."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    at: str
    free: int
    total: int
    free_inodes: int | None = None


class Facts(BaseModel):
    """What a host has left, by its own account."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    memory: Memory
    disk: dict[str, Disk] = {}
    cpus: int
    load: tuple[float, float, float] = (0.0, 0.0, 0.0)
    at: float
    boot_id: str = ""


class Need(BaseModel):
    """What a launch would take, and what must stay free beside it; by path for disks.

    `memory_reserve_bytes`: None keeps a twentieth of the machine's memory, and half a GiB at least, for sshd, for
    the page cache that a run reads through, and for the growth of what runs there already.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    memory_bytes: int = Field(0, ge=0)
    memory_reserve_bytes: int | None = Field(None, ge=0)
    disk: Mapping[str, int] = {}
    disk_reserve_bytes: int = Field(GIB, ge=0)

    def reserve(self, total: int) -> int:
        if self.memory_reserve_bytes is not None:
            return self.memory_reserve_bytes
        return max(GIB // 2, total // 20)


def check_head_room(facts: Facts, need: Need, *, host: str) -> None:
    """Raise RefusedError, with numbers, when the host has not enough left for what is needed."""
    memory, reserve = facts.memory, need.reserve(facts.memory.total)
    if need.memory_bytes and memory.available - reserve < need.memory_bytes:
        bound = f" (bound by {memory.bound_by})" if memory.bound_by else ""
        raise RefusedError(
            f"the job needs {size(need.memory_bytes)} of memory; {size(memory.available)} are available{bound}, "
            f"of which {size(reserve)} are kept free",
            rule="headroom-memory",
            where=host,
            hint="wait until memory is free there, use a smaller model or limit, or another host",
        )
    for path, wanted in need.disk.items():
        disk = facts.disk.get(path)
        if disk is None:
            raise RefusedError(f"free space at {path} is unknown", rule="headroom-disk", where=host)
        if disk.free - need.disk_reserve_bytes < wanted or disk.free_inodes == 0:
            inodes = ", and no inode is" if disk.free_inodes == 0 else ""
            raise RefusedError(
                f"the job needs {size(wanted)} at {path}; {size(disk.free)} are free{inodes}, "
                f"of which {size(need.disk_reserve_bytes)} are kept free",
                rule="headroom-disk",
                where=host,
                hint="free space there",
            )
