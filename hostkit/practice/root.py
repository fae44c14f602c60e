"""The one temporary root under which everything of a practice fleet lies, and where each thing is in it."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hostkit.errors import CannotCreateError, ConfigError

PVE_NAME = "pve.practice.invalid"  # .invalid never resolves (RFC 6761): only ct129 knows the way
VMID = 200
MARK = "HOSTKIT_PRACTICE"  # environment variable of every process of a fleet; its value is the fleet's root
JOB_MARK = "HOSTKIT_JOB"  # environment variable of every job of hostkit's; its value is the job's folder

_PLAIN = re.compile(
    r"[A-Za-z0-9._/-]{1,70}"
)  # fits ssh_config and YAML unquoted, and the 107 bytes of a socket name


@dataclass(frozen=True, slots=True)
class Account:
    """A login on a stand-in host: its file system, home, and what sshd would keep for it."""

    name: str
    top: Path

    @property
    def home(self) -> Path:
        return self.top / "root"

    @property
    def ssh(self) -> Path:
        return self.home / ".ssh"

    @property
    def identity(self) -> Path:
        return self.ssh / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.ssh / "known_hosts"

    @property
    def ssh_config(self) -> Path:
        return self.ssh / "config"

    @property
    def authorized_keys(self) -> Path:
        return self.ssh / "authorized_keys"

    @property
    def host_key(self) -> Path:
        return self.top / "etc/ssh/ssh_host_ed25519_key"

    @property
    def bin(self) -> Path:
        return self.top / "usr/sbin"

    @property
    def tmp(self) -> Path:
        return self.top / "tmp"


@dataclass(frozen=True, slots=True)
class Root:
    """Paths of one practice fleet: a folder for each host, which stands for its `/`, and one for the laptop."""

    path: Path

    @property
    def laptop(self) -> Account:
        return Account("laptop", self.path / "laptop")

    @property
    def ct129(self) -> Account:
        return Account("ct129", self.path / "ct129")

    @property
    def pve(self) -> Account:
        return Account("pve", self.path / "pve")

    @property
    def ct200(self) -> Account:
        return Account("ct200", self.path / "ct200")

    def account(self, host: str) -> Account:
        return {a.name: a for a in (self.laptop, self.ct129, self.pve, self.ct200)}[host]

    @property
    def record(self) -> Path:
        return self.path / "fleet.json"

    @property
    def processes(self) -> Path:
        return self.path / "processes.jsonl"

    @property
    def inventory(self) -> Path:
        return self.path / "inventory.yaml"

    @property
    def archive(self) -> Path:
        return self.laptop.top / "data/dflash/checkpoints"

    @property
    def port_file(self) -> Path:
        return self.ct129.top / "run/sshd.port"

    @property
    def socket(self) -> Path:
        return self.pve.top / "run/sshd.sock"

    def pid_file(self, host: str) -> Path:
        """Written by a host's SSH server as soon as it is a process of its own."""
        return self.account(host).top / "run/sshd.pid"

    def ready_file(self, host: str) -> Path:
        """Written by a host's SSH server when it takes logins."""
        return self.account(host).top / "run/sshd.ready"

    @property
    def running_flag(self) -> Path:
        """Present while the container counts as running; `pct` looks at it."""
        return self.pve.top / f"run/lxc-{VMID}.running"

    @property
    def trainer(self) -> Path:
        return self.ct200.top / "root/dflash/train_drafter.py"

    @property
    def checkpoints(self) -> Path:
        return self.ct200.top / "workspace/checkpoints"

    @property
    def train_log(self) -> Path:
        return self.ct200.top / "workspace/train.log"

    @property
    def training_target(self) -> Path:
        return self.ct200.top / "models/tiny"

    @property
    def evaluation_target(self) -> Path:
        return self.ct129.top / "models/tiny"

    @property
    def workspace(self) -> Path:
        return self.ct129.top / "root/eval"

    def laptop_environment(self) -> dict[str, str]:
        """Return what makes hostkit keep its own files (journal, cache, hostkit's known_hosts) inside the root."""
        home = self.laptop.home
        return {
            "XDG_CONFIG_HOME": str(home / ".config"),
            "XDG_DATA_HOME": str(home / ".local/share"),
            "XDG_STATE_HOME": str(home / ".local/state"),
            "XDG_CACHE_HOME": str(home / ".cache"),
            "XDG_RUNTIME_DIR": str(self.laptop.tmp),
        }


def login_name() -> str:
    """Return this user's login name, as OpenSSH reads it. Raises ConfigError where there is none."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        raise ConfigError(
            f"user id {os.getuid()} has no entry in passwd, so ssh refuses to run",
            hint="run as a user that `getent passwd` knows",
        ) from None


def base() -> Path:
    """Return the folder of all practice fleets of this user, made private if need be."""
    parent = Path(tempfile.gettempdir()).resolve()
    if not _PLAIN.fullmatch(f"{parent}/hostkit-practice-{os.getuid()}/00000000"):
        raise ConfigError(
            "is too long, or has characters that ssh_config would need quoted",
            where=f"TMPDIR={parent}",
            hint="TMPDIR=/tmp hostkit practice",
        )
    folder = parent / f"hostkit-practice-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        state = folder.lstat()
    except OSError as error:
        raise CannotCreateError(
            str(error.strerror), where=str(folder), hint="set TMPDIR to a folder you own"
        ) from error
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o077:
        raise CannotCreateError(
            "is not a private folder of yours",
            where=str(folder),
            hint="remove it, or set TMPDIR to a folder you own",
        )
    return folder


def create() -> Root:
    """Make an empty root, 0700, with the folders of every host."""
    root = Root(Path(tempfile.mkdtemp(prefix="", dir=base())))
    for account in (root.laptop, root.ct129, root.pve, root.ct200):
        for folder in (account.ssh, account.host_key.parent, account.bin, account.tmp, account.top / "run"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in (
        root.archive,
        root.workspace,
        root.checkpoints,
        root.trainer.parent,
        root.evaluation_target.parent,
    ):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    root.training_target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return root


def all_roots() -> list[Root]:
    """Return the roots of this user's practice fleets, oldest first; a folder that is none of ours is not one."""
    folders = [
        p for p in base().iterdir() if p.is_dir() and not p.is_symlink() and p.stat().st_uid == os.getuid()
    ]
    return [Root(p) for p in sorted(folders, key=lambda p: p.stat().st_ctime_ns)]


def remove(root: Root) -> None:
    """Remove a root and all in it. Only folders directly below `base()` are ever removed."""
    if root.path.parent != base():
        raise CannotCreateError("is not the root of a practice fleet", where=str(root.path))
    shutil.rmtree(root.path)
