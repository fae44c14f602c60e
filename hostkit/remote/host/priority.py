"""The lowest place for CPU and disk, each measure applied and read back. For jobs, and for both ends of a copy.

Travels to hosts: standard library only, Python 3.8+.
"""

from __future__ import annotations

import errno
import os
import platform
import time
from typing import Any, Dict, List

from host import process

_IOPRIO = {
    "x86_64": (251, 252),
    "aarch64": (30, 31),
    "riscv64": (30, 31),
    "ppc64le": (273, 274),
    "s390x": (282, 283),
}
_IDLE_CLASS = 3 << 13

Measure = Dict[str, Any]


def measure(name: str, real: bool, detail: str) -> Measure:
    return {"name": name, "real": real, "detail": detail}


def take() -> List[Measure]:
    """Lower this process, and so all that it starts."""
    return [io_class(), nice(), autogroup()]


def nice() -> Measure:
    try:
        os.setpriority(os.PRIO_PROCESS, 0, 19)
    except OSError as error:
        return measure("nice", False, os.strerror(error.errno or 0))
    return measure("nice", os.getpriority(os.PRIO_PROCESS, 0) == 19, "19")


def autogroup() -> Measure:
    """Lower the whole session: the kernel shares a core among sessions first, and nice counts only inside one."""
    if (process.read("/proc/sys/kernel/sched_autogroup_enabled") or b"0").strip() != b"1":
        return measure("autogroup", False, "the kernel does not group by session, so nice counts by itself")
    for _ in range(8):
        try:
            with open("/proc/self/autogroup", "w") as file:
                file.write("19")
            break
        except OSError as error:
            if (
                error.errno != errno.EAGAIN
            ):  # without privileges the kernel takes one change in a tenth of a second
                return measure("autogroup", False, os.strerror(error.errno or 0))
            time.sleep(0.11)
    state = (process.read("/proc/self/autogroup") or b"").decode("ascii", "replace").strip()
    return measure("autogroup", state.endswith("nice 19"), state)


def io_class() -> Measure:
    numbers = _IOPRIO.get(platform.machine())
    library = process.libc()
    if library is None or numbers is None:
        return measure("io-idle", False, "no way to call ioprio_set here (%s)" % platform.machine())
    library.syscall(numbers[0], 1, 0, _IDLE_CLASS)
    real = library.syscall(numbers[1], 1, 0) >> 13 == 3
    return measure(
        "io-idle",
        real,
        "idle class; whether the disk's scheduler heeds it is up to that" if real else "refused",
    )
