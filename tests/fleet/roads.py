"""Who may log in to whom in the fleet: roads between its hosts, opened and closed; an unprivileged container."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.fleet.fleet import Fleet
from tests.fleet.processes import argv
from tests.fleet.saves import inside

SHIFT = 100_000  # of the user ids of an unprivileged container


def open_road(fleet: Fleet, source: str = "ct200") -> None:
    """Give a container behind pve a key to ct129, and a route to the address that the laptop knows it by."""
    home = inside(fleet, source, "/root/.ssh")
    fleet.sh(source, ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/root/.ssh/id_ed25519"])
    public = (home / "id_ed25519.pub").read_text()
    with inside(fleet, "ct129", "/root/.ssh/authorized_keys").open("a") as accepted:
        accepted.write(public)
    host_key = inside(fleet, "ct129", "/etc/ssh/ssh_host_ed25519_key.pub")
    if not host_key.exists():
        fleet.sh(
            "ct129", ["sh", "-c", 'ssh-keygen -y -f "$1" >"$1.pub"', "sh", "/etc/ssh/ssh_host_ed25519_key"]
        )
    kind, key = host_key.read_text().split()[:2]
    (home / "known_hosts").write_text(f"{fleet.slot.outer(129)} {kind} {key}\n")
    fleet.sh(source, ["ip", "route", "add", f"{fleet.slot.outer(129)}/32", "via", fleet.slot.inner(129)])


def close_road(fleet: Fleet) -> None:
    """Take from ct129 its key to pve: it can pull nothing any more. The laptop's own key still opens pve-forward."""
    inside(fleet, "ct129", "/root/.ssh/id_ed25519").unlink()


def by_forward(fleet: Fleet, **changes: Any) -> Path:
    """Return an inventory whose run is reached with the laptop's own key, so that it needs none of ct129's."""

    def change(data: dict[str, Any]) -> None:
        data["runs"]["drafter"].update(host="ct200-forward")
        data["evals"]["drafter"].update(changes)
        data["hosts"]["ct201-forward"] = {"pct": 201, "via": "pve-forward", "machine": "pve"}

    return fleet.inventory_with(change)


def everybody(fleet: Fleet) -> set[tuple[str, int]]:
    """Return every process of the hosts that staging runs on, and on this machine every ssh of the fleet's laptop."""
    found = {(host, pid) for host in ("ct129", "pve", "ct200") for pid in fleet.processes(host)}
    mine = str(fleet.identity)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and any(mine in word for word in argv(int(entry.name))):
            found.add(("laptop", int(entry.name)))
    return found


def unprivileged(fleet: Fleet) -> str:
    """Start ct201 with user ids of its own, as Proxmox makes containers by default; return its name."""
    for table in ("/etc/subuid", "/etc/subgid"):
        inside(fleet, "pve", table).write_text(f"root:{SHIFT}:65536\n")
    config = inside(fleet, "pve", "/var/lib/lxc/201/config")
    text = config.read_text().replace(
        "proc:rw sys:rw cgroup:rw:force", "proc:mixed sys:mixed cgroup:mixed:force"
    )
    # what is shown of this machine lies behind folders that only this machine's root may enter
    text = "".join(line for line in text.splitlines(keepends=True) if " none rbind" not in line)
    maps = [f"lxc.idmap = {kind} 0 {SHIFT} 65536" for kind in "ug"]
    config.write_text(text + "\n".join(maps) + "\n")
    for folder in ("root", "workspace", "home", "models", "etc", "run", "tmp", "mnt", "var/tmp"):
        fleet.sh("pve", ["chown", "-R", f"{SHIFT}:{SHIFT}", f"/var/lib/lxc/201/rootfs/{folder}"], check=False)
    fleet.start("ct201")
    return "ct201"
