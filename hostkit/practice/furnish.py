"""What stands in the folders of a fresh fleet: keys, ssh files, the `pct` stand-in, the inventory."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from hostkit.practice.root import PVE_NAME, VMID, Account, Root, login_name

_HERE = Path(__file__).parent

_CONFIG = """\
# The whole ssh configuration of {who} in this practice fleet: yours is neither read nor changed.
{hosts}
Host *
    User {user}
    IdentityFile {identity}
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile {known_hosts}
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    UpdateHostKeys no
    BatchMode yes
"""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a fleet is made with: its training, its limits of silence, its interpreter."""

    target_steps: int = 250
    total_steps: int = 20_000
    pace: float = 0.3  # seconds of rest after each step
    save_every: int = 50
    block_size: int = 8
    stall: str = "30s"
    startup: str = "2m"
    python: str = sys.executable


def keys(root: Root) -> None:
    """Make each host's key and each login's own; write who may log in where, and who trusts which host key."""
    import asyncssh

    public: dict[str, str] = {}
    for account in (root.laptop, root.ct129, root.pve):
        for path, what in ((account.identity, "login"), (account.host_key, "host")):
            key = asyncssh.generate_private_key("ssh-ed25519", comment=f"practice-{account.name}-{what}")
            _write(path, key.export_private_key().decode())
            text = key.export_public_key().decode()
            _write(path.with_suffix(".pub"), text)
            public[f"{account.name} {what}"] = text
    _write(root.ct129.authorized_keys, public["laptop login"])
    # ct129's key is for its own ssh (`login: there`, and rsync); the laptop's for a tunnel (`login: forward`).
    _write(root.pve.authorized_keys, public["ct129 login"] + public["laptop login"])
    pve = f"{PVE_NAME},pve {public['pve host']}"
    _write(root.ct129.known_hosts, pve)
    _write(root.laptop.known_hosts, pve)  # ct129's line joins when its port is known


def ssh_files(root: Root, port: int) -> None:
    """Write the ssh configuration of the laptop and of ct129, and the laptop's line for ct129's host key."""
    host_key = root.ct129.host_key.with_suffix(".pub").read_text()
    known = root.laptop.known_hosts.read_text()
    _write(root.laptop.known_hosts, f"[127.0.0.1]:{port},ct129 {host_key}{known}")
    _config(
        root.laptop,
        f"Host ct129\n    HostName 127.0.0.1\n    Port {port}\n"
        f"Host pve {PVE_NAME}\n    HostName {PVE_NAME}\n    ProxyJump ct129\n",
    )
    connect = shlex.join([sys.executable, "-I", "-S", str(_HERE / "connect.py"), str(root.socket)])
    _config(
        root.ct129,
        f"Host pve {PVE_NAME}\n    HostName {PVE_NAME}\n"
        f"    ProxyCommand {connect.replace('%', '%%')}\n    ProxyUseFdpass yes\n",
    )


def container(root: Root) -> None:
    """Put the `pct` stand-in on pve, and container 200 behind it, running."""
    pct = (_HERE / "pct.sh").read_text()
    pct = pct.replace("@PVE@", str(root.pve.top)).replace("@CT@", str(root.ct200.top))
    _write(root.pve.bin / "pct", pct, mode=0o700)
    _write(root.pve.top / f"etc/pve/lxc/{VMID}.conf", "arch: amd64\nhostname: ct200\nunprivileged: 1\n")
    _write(root.running_flag, "")


def inventory(root: Root, port: int, settings: Settings) -> None:
    """Write the inventory of this fleet: the same hosts, run and evaluation as the production example."""
    _write(root.inventory, inventory_text(str(root.path), port, login_name(), settings))


def inventory_text(root: str, port: int, user: str, settings: Settings) -> str:
    """Return the inventory of a fleet as text."""
    text = (_HERE / "inventory.yaml.in").read_text()
    values = {
        "ROOT": root,
        "PORT": str(port),
        "USER": json.dumps(user),
        "PYTHON": json.dumps(settings.python, ensure_ascii=False),
        "PVE_NAME": PVE_NAME,
        "VMID": str(VMID),
        "TOTAL_STEPS": str(settings.total_steps),
        "SAVE_EVERY": str(settings.save_every),
        "BLOCK_SIZE": str(settings.block_size),
        "STALL": settings.stall,
        "STARTUP": settings.startup,
    }
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def _config(account: Account, hosts: str) -> None:
    text = _CONFIG.format(
        who=account.name,
        hosts=hosts,
        user=login_name(),
        identity=account.identity,
        known_hosts=account.known_hosts,
    )
    _write(account.ssh_config, text)


def _write(path: Path, text: str, mode: int = 0o600) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode)
    path.write_text(text)
    path.chmod(mode)
