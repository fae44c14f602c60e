"""What this machine must offer before a fleet can be raised on it, said in one line when it does not."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

TOOLS = {
    "lxc-start": "lxc",
    "lxc-attach": "lxc",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "rsync": "rsync",
}
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def lacking() -> str | None:
    """Return why no fleet can be raised here, or None when one can."""
    if sys.platform != "linux":
        return "the real fleet runs on Linux only"
    if os.geteuid() != 0:
        return "the real fleet needs root (namespaces, containers)"
    absent = sorted({package for tool, package in TOOLS.items() if not shutil.which(tool, path=SYSTEM_PATH)})
    if absent:
        return f"the real fleet needs: apt-get install --no-install-recommends {' '.join(absent)}"
    if not Path("/proc/self/ns/pid").exists() or "overlay" not in _filesystems():
        return "the real fleet needs a kernel with namespaces and overlayfs"
    return None


def required() -> bool:
    """Whether a missing fleet is a failure instead of a skip (`.ci/run` says so)."""
    return os.environ.get("HOSTKIT_REQUIRE_FLEET") == "1"


def _filesystems() -> str:
    # overlay may be a module that is loaded at the first mount; modules.builtin names the built-in ones
    listed = Path("/proc/filesystems").read_text()
    modules = Path("/lib/modules", os.uname().release)
    return listed + "".join(
        file.read_text(errors="replace")
        for name in ("modules.builtin", "modules.dep")
        if (file := modules / name).is_file()
    )
