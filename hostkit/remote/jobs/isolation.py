"""What keeps a job out of a live run's way: each measure applied, read back, and reported with whether it holds.

Travels to hosts: standard library only, Python 3.8+.
"""

from __future__ import annotations

import os
import resource
import time
from typing import Any, Dict, List, Tuple

from host import priority, process
from host.priority import Measure, measure

_STACKS = (
    256 << 20
)  # RLIMIT_DATA counts thread stacks and arenas that are never touched; the watchdog does not

HIDDEN_GPUS = {
    "CUDA_VISIBLE_DEVICES": "",
    "NVIDIA_VISIBLE_DEVICES": "void",
    "HIP_VISIBLE_DEVICES": "-1",
    "ROCR_VISIBLE_DEVICES": "",
    "ZE_AFFINITY_MASK": "-1",
}
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def environment(limits: Dict[str, Any], hide_gpus: bool) -> Tuple[Dict[str, str], List[Measure]]:
    """Return the variables that hide GPUs and bound thread pools, and the measures that they are."""
    found: Dict[str, str] = {}
    measures = []
    if hide_gpus:
        found.update(HIDDEN_GPUS)
        measures.append(measure("gpus-hidden", True, "by environment: " + ", ".join(sorted(HIDDEN_GPUS))))
    if limits.get("cpus"):
        found.update({name: str(limits["cpus"]) for name in _THREADS})
        measures.append(measure("threads", True, "thread pools of %d by environment" % limits["cpus"]))
    return found, measures


def apply(limits: Dict[str, Any], memory_group: bool) -> List[Measure]:
    """Apply all measures to this process, which is about to become the payload; those that slow it down come last."""
    measures = [priority.io_class(), _first_to_die()]
    if limits.get("cpus"):
        measures.append(_affinity(int(limits["cpus"])))
    if limits.get("memory_bytes") and not memory_group:
        measures.append(_data_limit(int(limits["memory_bytes"])))
    return [*measures, priority.nice(), priority.autogroup()]


def _first_to_die() -> Measure:
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError as error:
        return measure("oom-first", False, os.strerror(error.errno or 0))
    real = (process.read("/proc/self/oom_score_adj") or b"").strip() == b"1000"
    return measure("oom-first", real, "oom_score_adj 1000")


def _affinity(count: int) -> Measure:
    allowed = sorted(os.sched_getaffinity(0))
    if count >= len(allowed):
        return measure("cpus", True, "%d CPUs, all that are allowed here" % len(allowed))
    chosen = set(_idlest(allowed)[:count])
    try:
        os.sched_setaffinity(0, chosen)
    except OSError as error:
        return measure("cpus", False, os.strerror(error.errno or 0))
    return measure("cpus", os.sched_getaffinity(0) == chosen, "CPUs " + ",".join(map(str, sorted(chosen))))


def _idlest(allowed: List[int]) -> List[int]:
    """Order CPUs by how idle they have been for the last twentieth of a second, so as to keep off the run's."""

    def idle() -> Dict[int, int]:
        found = {}
        for line in (process.read("/proc/stat") or b"").decode("ascii", "replace").splitlines():
            words = line.split()
            if words and words[0].startswith("cpu") and words[0][3:].isdigit():
                found[int(words[0][3:])] = int(words[4])
        return found

    before = idle()
    time.sleep(0.05)
    after = idle()
    return sorted(allowed, key=lambda cpu: (before.get(cpu, 0) - after.get(cpu, 0), -cpu))


def _data_limit(wanted: int) -> Measure:
    """Bound private writable memory; never the address space, which mapped weights need (RLIMIT_AS breaks them)."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    bound = wanted + _STACKS if hard == resource.RLIM_INFINITY else min(wanted + _STACKS, hard)
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))
    except (OSError, ValueError) as error:
        return measure("memory-rlimit", False, str(error))
    return measure("memory-rlimit", True, "RLIMIT_DATA %d" % bound)
