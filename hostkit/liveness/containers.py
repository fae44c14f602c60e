"""Which container of its host a process is in, by its cgroup path (pure)."""

from __future__ import annotations

import re

# LXC and Proxmox (lxc/200, lxc.payload.200), docker, podman, containerd, CRI-O, systemd-nspawn
_NAMES = re.compile(
    r"/lxc(?:\.payload[./]|/)(?P<lxc>[^/]+)"
    r"|/(?:docker|libpod|cri-containerd|crio)[-/](?P<id>[0-9a-f]{12,64})"
    r"|/machine-(?P<machine>[^/]+)\.scope"
    r"|/systemd-nspawn@(?P<nspawn>[^/]+)\.service"
)
ANY = "any"
_SHORT = 12  # digits of an id, as docker shows it


def container_name(cgroup: str | None) -> str | None:
    """Return the name of an LXC or nspawn container, the short id of others; None where the path names none."""
    match = _NAMES.search(cgroup or "")
    if match is None:
        return None
    return match["id"][:_SHORT] if match["id"] else match["lxc"] or match["machine"] or match["nspawn"]


def is_in(cgroup: str | None, name: str) -> bool:
    """Whether a cgroup path is that of the container that the inventory names."""
    if name == ANY:
        return True
    match = _NAMES.search(cgroup or "")
    if match is not None and match["id"] and len(name) >= _SHORT:
        return match["id"].startswith(name)
    return container_name(cgroup) == name or name in (cgroup or "").split("/")
