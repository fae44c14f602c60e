"""Which process is meant, so that no other that was given the same number can be taken for it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Identity(BaseModel):
    """A process on a host; compares only inside one pid namespace of one boot.

    `start_ticks` and `init_start_ticks` are field 22 of /proc/PID/stat, of the process and of pid 1 (a
    container that was restarted keeps the boot id of its kernel, but not the start of its pid 1).
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    boot_id: str
    pid_ns: int
    pid: int
    start_ticks: int
    init_start_ticks: int
