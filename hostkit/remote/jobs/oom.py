"""What proves that a payload ended for want of memory, beyond counters: the kernel's log, its own last words.

Travels to hosts: standard library only, Python 3.8+.
"""

from __future__ import annotations

import os
import re
from typing import Optional

from jobs import folder

_INITIAL_PID_NAMESPACE = 0xEFFFFFFC  # its inode, the same in every kernel
_REFUSED = re.compile(rb"MemoryError|std::bad_alloc|can't allocate memory|Cannot allocate memory")


def kernel_said(pid: int, since: float) -> Optional[str]:
    """Look for this very pid in the kernel's log, where it is readable and numbers processes as we do.

    `since`: monotonic seconds; an older line is of an older process.
    """
    if os.stat("/proc/self/ns/pid").st_ino != _INITIAL_PID_NAMESPACE:
        return None
    try:
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        while True:
            try:
                record = os.read(log, 8192)
            except BrokenPipeError:
                continue  # overwritten while we read
            except OSError:
                return None
            said = killed_in(record, pid, since)
            if said is not None:
                return said
    finally:
        os.close(log)


def killed_in(record: bytes, pid: int, since: float) -> Optional[str]:
    """Return the text of a record (`priority,sequence,microseconds,…;text`) that tells of this kill, or None."""
    head, _, text = record.partition(b";")
    if b"Killed process %d " % pid not in text or int(head.split(b",")[2]) / 1e6 < since - 5:
        return None
    return "the kernel's log: " + text.splitlines()[0].decode("utf-8", "replace")


def refused_allocation(path: str) -> Optional[str]:
    """Return the line at the end of the job's err that says that memory was refused, or None."""
    tail: bytes = folder.tail(path, "err", -4096, 4096)["data"]
    for line in tail.splitlines()[-5:]:
        if _REFUSED.search(line):
            return line.decode("utf-8", "replace")[:200]
    return None
