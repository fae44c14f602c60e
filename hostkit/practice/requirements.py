"""What a practice fleet needs of this machine, looked for before anything is made."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from hostkit.errors import ConfigError
from hostkit.practice.root import base, login_name

_DISK = 600 * 2**20  # two copies of a small target, checkpoints of a training of hours
_MEMORY = 2048 * 2**20  # training and evaluation, each a process with torch in it


def check(*, training: bool = True) -> None:
    """Raise ConfigError, all in one line, if a fleet cannot work here. `training` is what needs torch."""
    lacks = [f"{what} (try: {hint})" for what, hint in _lacking(training)]
    if lacks:
        raise ConfigError("this machine lacks " + "; ".join(lacks), where="practice")
    login_name()


def _lacking(training: bool) -> list[tuple[str, str]]:
    if not sys.platform.startswith("linux"):
        return [("Linux, which the practice fleet's hosts are", "a Linux machine or container")]
    found = []
    if shutil.which("ssh") is None:
        found.append(("ssh", "apt install openssh-client"))
    packages = ["asyncssh", *(["torch", "transformers", "safetensors"] if training else [])]
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        found.append(
            ("the Python packages " + ", ".join(missing), "pip install -e '.[practice]' in the checkout")
        )
    folder = base()
    free = shutil.disk_usage(folder).free
    if free < _DISK:
        found.append(
            (f"disk space: {_mib(free)} free in {folder}, {_mib(_DISK)} needed", "TMPDIR=/another/disk")
        )
    memory = free_memory()
    if training and memory is not None and memory < _MEMORY:
        found.append((f"memory: {_mib(memory)} available, {_mib(_MEMORY)} needed", "end something large"))
    return found


def free_memory() -> int | None:
    """Return the bytes that new processes can take: the kernel's own estimate, or less in a capped container."""
    lines = _read("/proc/meminfo").splitlines()
    values = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        cap, usage = _read(limit).strip(), _read(used).strip()
        if cap.isdigit() and usage.isdigit() and int(cap) < 2**60:
            values.append(max(0, int(cap) - int(usage)))
    return min(values, default=None)


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""  # another kernel's layout: what cannot be read is not asked for


def _mib(size: int) -> str:
    return f"{size // 2**20} MiB"
