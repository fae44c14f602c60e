"""The files of each host of the fleet: the upper layer that is laid over this machine's own root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.fleet.slot import Slot

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
OUTER, INNER = "vmbr1", "vmbr0"  # bridges on pve: the laptop's side, and the one behind ct129


@dataclass(frozen=True)
class Container:
    """One LXC container: its networks as (bridge, last number of its address), and whether it runs sshd."""

    vmid: int
    networks: tuple[tuple[str, int], ...] = ()
    sshd: bool = False
    starts: bool = True

    @property
    def name(self) -> str:
        return f"ct{self.vmid}"


LAPTOP, PVE = 1, 6
CT129 = Container(129, ((OUTER, 129), (INNER, 129)), sshd=True)
CT200 = Container(200, ((INNER, 200),))
CT201 = Container(201, starts=False)  # a neighbour, for what may be mistaken for ct200's
CONTAINERS = (CT129, CT200, CT201)

SSHD_CONFIG = """\
HostKey /etc/ssh/ssh_host_ed25519_key
PidFile none
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
MaxStartups 100:30:200
MaxSessions 64
Subsystem sftp /usr/lib/openssh/sftp-server
"""
# As process 1 it must reap what it did not start, and it must leave when LXC asks it to.
INIT = """\
#!/bin/sh
trap 'exit 0' TERM PWR INT
mkdir -p /run/sshd /run/lock
[ ! -e /etc/ssh/fleet ] || /usr/sbin/sshd
while :; do sleep 3600 & wait $!; done
"""
START_FILES = (".bashrc", ".profile", ".bash_profile", ".bash_login", ".zshenv")


def shown() -> list[Path]:
    """Return what every host sees of this machine, read-only and at its own path: interpreter and checkout."""
    wanted = {CHECKOUT, Path(sys.prefix), Path(sys.base_prefix)}
    link = Path(sys.executable)
    while link.is_symlink():  # a venv made by the python of another venv leads through that one
        link = Path(os.path.normpath(link.parent / link.readlink()))
        wanted.add(link.parent)
    wanted -= {Path("/usr"), Path("/usr/bin")}  # in the lower layer anyway
    return sorted(path for path in wanted if not any(other in path.parents for other in wanted))


class Keys:
    """The fleet's ssh keys: logins of the laptop and of ct129, host keys of ct129 and pve."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700)
        for name in ("laptop", "ct129", "host-ct129", "host-pve"):
            command = [
                "ssh-keygen",
                "-q",
                "-t",
                "ed25519",
                "-N",
                "",
                "-C",
                f"fleet {name}",
                "-f",
                str(folder / name),
            ]
            subprocess.run(command, check=True)

    def private(self, name: str) -> Path:
        return self.folder / name

    def public(self, name: str) -> str:
        kind, key, *_ = (self.folder / f"{name}.pub").read_text().split()
        return f"{kind} {key}"


def write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def lay_out(slot: Slot, keys: Keys) -> None:
    """Write the upper layers of pve and of all containers below the slot's folder."""
    pve = _host(slot, keys, "pve", accepts=("laptop", "ct129"))
    pct = pve / "usr/sbin/pct"
    pct.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "pct.py", pct)
    pct.chmod(0o755)
    write(pve / "etc/pve/local_nodename", "pve\n")
    for container in CONTAINERS:
        upper = _host(slot, keys, container.name, accepts=("laptop",) if container.sshd else ())
        write(pve / f"etc/pve/lxc/{container.vmid}.conf", _pve_config(slot, container))
        write(pve / f"var/lib/lxc/{container.vmid}/config", _lxc_config(slot, container))
        (pve / f"var/lib/lxc/{container.vmid}/rootfs").mkdir()
        if container.sshd:
            home = upper / "root/.ssh"
            shutil.copy(keys.private("ct129"), home / "id_ed25519")
            write(home / "known_hosts", f"pve,{slot.inner(PVE)} {keys.public('host-pve')}\n", 0o600)


def _host(slot: Slot, keys: Keys, name: str, accepts: tuple[str, ...]) -> Path:
    folder = slot.folder / "hosts" / name
    for part in ("root", "work", "upper"):
        (folder / part).mkdir(parents=True)
    upper = folder / "upper"
    for bare in ("root", "home", "workspace", "models", "etc/ssh", "var/tmp"):
        (upper / bare).mkdir(parents=True)
        if Path("/", bare).is_dir():  # an opaque folder hides what this machine has there
            os.setxattr(upper / bare, "trusted.overlay.opaque", b"y")
    (upper / "root").chmod(0o700)
    (upper / "var/tmp").chmod(0o1777)
    for path in shown():
        (upper / path.relative_to("/")).mkdir(parents=True, exist_ok=True)
    for start_file in START_FILES:
        write(upper / "root" / start_file, "")
    write(upper / "usr/sbin/fleet-init", INIT, 0o755)
    write(upper / "etc/hostname", f"{name}\n")
    write(upper / "etc/hosts", f"127.0.0.1 localhost {name}\n{slot.inner(PVE)} pve\n")
    home = upper / "root/.ssh"
    home.mkdir(mode=0o700)
    if accepts:
        write(home / "authorized_keys", "".join(f"{keys.public(key)}\n" for key in accepts), 0o600)
        write(upper / "etc/ssh/sshd_config", SSHD_CONFIG)
        write(upper / "etc/ssh/fleet", "")
        shutil.copy(keys.private(f"host-{name}"), upper / "etc/ssh/ssh_host_ed25519_key")
    return upper


def _address(slot: Slot, bridge: str, last: int) -> str:
    return f"{slot.outer(last) if bridge == OUTER else slot.inner(last)}/24"


def _pve_config(slot: Slot, container: Container) -> str:
    """Return the container's file as Proxmox keeps it (pct.conf(5)): for reading only, LXC has its own."""
    lines = ["arch: amd64", f"hostname: {container.name}", "memory: 4096", "ostype: debian", "swap: 0"]
    lines += [f"rootfs: local:{container.vmid}/root.raw,size=8G"]
    for index, (bridge, last) in enumerate(container.networks):
        lines.append(
            f"net{index}: name=eth{index},bridge={bridge},ip={_address(slot, bridge, last)},type=veth"
        )
    return "\n".join(sorted(lines)) + "\n"


def _lxc_config(slot: Slot, container: Container) -> str:
    lines = [
        f"lxc.uts.name = {container.name}",
        f"lxc.rootfs.path = dir:/var/lib/lxc/{container.vmid}/rootfs",
        "lxc.init.cmd = /usr/sbin/fleet-init",
        "lxc.mount.auto = proc:rw sys:rw cgroup:rw:force",
        "lxc.apparmor.profile = unconfined",
        "lxc.tty.max = 0",
        "lxc.signal.halt = SIGTERM",
        "lxc.mount.entry = tmpfs dev/shm tmpfs rw,nosuid,nodev,create=dir 0 0",
    ]
    lines += [f"lxc.mount.entry = tmpfs {place} tmpfs rw,optional 0 0" for place in ("tmp", "run", "mnt")]
    for path in shown():
        source, place = _fstab(path), _fstab(path.relative_to("/"))
        lines.append(f"lxc.mount.entry = {source} {place} none rbind,ro,create=dir 0 0")
    for index, (bridge, last) in enumerate(container.networks):
        lines += [
            f"lxc.net.{index}.type = veth",
            f"lxc.net.{index}.link = {bridge}",
            f"lxc.net.{index}.name = eth{index}",
            f"lxc.net.{index}.veth.pair = {port(container, bridge)}",
            f"lxc.net.{index}.ipv4.address = {_address(slot, bridge, last)}",
            f"lxc.net.{index}.flags = up",
            # the same after a restart, as Proxmox keeps it: neighbours remember it
            f"lxc.net.{index}.hwaddr = 02:77:{slot.number:02x}:00:{index:02x}:{container.vmid:02x}",
        ]
    if not container.networks:
        lines.append("lxc.net.0.type = empty")
    return "\n".join(lines) + "\n"


def port(container: Container, bridge: str) -> str:
    """Return the name of the container's port on a bridge of pve."""
    return f"veth{container.vmid}-{bridge[-1]}"


def _fstab(path: Path) -> str:
    return str(path).replace("\\", r"\134").replace(" ", r"\040").replace("\t", r"\011")
