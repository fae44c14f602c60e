"""A number for each fleet: it gives names, subnets and a folder, and a kernel lock says that it is taken."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

BASE = Path(os.environ.get("HOSTKIT_FLEETS", "/var/tmp/hostkit-fleets"))
LAST = 240


@dataclass(frozen=True)
class Slot:
    """Fleet number n. While `lock` (a descriptor) is open in some process, nobody else takes the number."""

    number: int
    lock: int | None = None

    @property
    def folder(self) -> Path:
        return BASE / str(self.number)

    @property
    def record(self) -> Path:
        return self.folder / "fleet.json"

    @property
    def cgroup(self) -> str:
        return f"hostkit-fleet-{self.number}"

    @property
    def link(self) -> str:
        return f"hkfleet{self.number}"

    def outer(self, last: int) -> str:
        """Address on the network that the laptop shares with ct129."""
        return f"10.77.{self.number}.{last}"

    def inner(self, last: int) -> str:
        """Address on the network behind ct129, to which the laptop has no route."""
        return f"10.79.{self.number}.{last}"

    def release(self) -> None:
        if self.lock is not None:
            os.close(self.lock)


def claim(preferred: int) -> Slot:
    """Take the preferred number, or the next that nobody holds. What a dead holder left is the caller's to clear."""
    BASE.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number in [*range(preferred, LAST + 1), *range(1, preferred)]:
        # Python's descriptors close on exec, so a holder that is killed frees its number whatever it had started
        lock = os.open(BASE / f"{number}.lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        return Slot(number, lock)
    raise RuntimeError(f"all {LAST} fleet numbers are taken (locks in {BASE})")


def recorded_slots() -> list[Slot]:
    """Return the slots of the fleets that were raised and not taken down, alive or not."""
    return [
        Slot(number) for number in sorted(int(record.parent.name) for record in BASE.glob("*/fleet.json"))
    ]
