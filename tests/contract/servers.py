"""Unprivileged real `sshd`s on loopback: own host keys, own client keys, own configuration; nothing of the user's."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hostkit.inventory.models import Inventory

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
USER = pwd.getpwuid(os.getuid()).pw_name

# `pct exec ID -- argv` without a container: it checks its arguments as the real one does, resets PATH, keeps the
# caller's environment, and starts argv without a shell.
# What a chatty account prints before and after each command, on both streams.
NOISE = 'echo "Welcome to the machine"; printf "no newline"; echo careful >&2; eval "$SSH_ORIGINAL_COMMAND"; echo bye'

PCT = """#!/bin/sh
PATH=/sbin:/bin:/usr/sbin:/usr/bin
verb=$1 id=$2
[ "$verb" = exec ] || { echo "unknown command 'pct $verb'" >&2; exit 255; }
[ "$3" = -- ] || { echo "400 Parameter verification failed." >&2; exit 255; }
shift 3
exec "$@"
"""

# `sudo -n -u USER -- argv` for whoever asks: a fresh environment, as sudoers' env_reset makes it.
SUDO = """#!/bin/sh
[ "$1 $2 $4" = "-n -u --" ] || { echo "usage: sudo" >&2; exit 1; }
user=$3
shift 4
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin:"${0%/*}" SUDO_USER="$user" "$@"
"""


def keygen(path: Path, *options: str) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path, *options], check=True)
    return path


def free_port() -> int:
    """Return a port that nobody uses, outside of the range from which connections get theirs."""
    while True:
        port = random.randrange(15_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def has_ipv6() -> bool:
    """Whether this machine has an IPv6 loopback to listen on."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@dataclass
class Server:
    """One sshd. `home` holds what the login shell reads; `bin` comes first in its PATH."""

    root: Path
    name: str
    options: tuple[str, ...] = ()
    shell: str | None = None  # run each command by this shell instead of the account's own
    port: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def folder(self) -> Path:
        return self.root / self.name

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    @property
    def public_key(self) -> str:
        return " ".join((self.folder / "host_key.pub").read_text().split()[:2])

    def start(self) -> Server:
        if os.geteuid() == 0:  # root's sshd wants its empty folder; elsewhere a boot script makes it
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        for folder in (self.home, self.bin):
            folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / "host_key").exists():
            keygen(self.folder / "host_key")
        for name, text in (("pct", PCT), ("sudo", SUDO)):
            if not (self.bin / name).exists():
                (self.bin / name).write_text(text)
                (self.bin / name).chmod(0o755)
        if not (self.root / "id").exists():
            keygen(self.root / "id")
        authorized = self.folder / "authorized_keys"
        authorized.write_text((self.root / "id.pub").read_text())
        for _ in range(5):
            self.port = self.port or free_port()
            if self._listen(authorized):
                return self
            self.port = 0
        raise RuntimeError((self.folder / "log").read_text())

    def _listen(self, authorized: Path) -> bool:
        config = self.folder / "sshd_config"
        lines = [
            *self.options,
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.folder}/host_key",
            f"AuthorizedKeysFile {authorized}",
            "PidFile none",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin prohibit-password",
            "PrintMotd no",
            "MaxStartups 100",
            # OpenSSH's default key exchange costs both sides 90 ms of CPU
            "KexAlgorithms curve25519-sha256,curve25519-sha256@libssh.org",
            # the account's own start-up files are slow, and none of a test's business
            f"SetEnv HOME={self.home} PATH={self.bin}:/usr/local/bin:/usr/bin:/bin",
        ]
        if self.shell:
            lines.append(f'ForceCommand exec {self.shell} -c "$SSH_ORIGINAL_COMMAND"')
        config.write_text("\n".join(lines) + "\n")
        with (self.folder / "log").open("ab") as log:
            before = log.seek(0, os.SEEK_END)
            self.process = subprocess.Popen(
                [SSHD, "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        # its own word: whoever greets at the port may be somebody else, who took it first
        listening = f"Server listening on 127.0.0.1 port {self.port}.".encode()
        end = time.monotonic() + 60
        while time.monotonic() < end and self.process.poll() is None:
            if listening in (self.folder / "log").read_bytes()[before:]:
                return True
            time.sleep(0.01)
        self.stop()
        return False

    def known_hosts_line(self, *names: str) -> str:
        return f"{','.join(names or (f'[127.0.0.1]:{self.port}',))} {self.public_key}\n"

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)


@dataclass
class Fleet:
    """Servers started on demand, ended together; and inventory hosts that use the fleet's own client files only."""

    root: Path
    servers: dict[str, Server] = field(default_factory=dict)

    def server(self, name: str, *options: str, shell: str | None = None, noisy: bool = False) -> Server:
        if name not in self.servers:
            if noisy:
                options += (f"ForceCommand {NOISE}",)
            self.servers[name] = Server(self.root, name, options, shell).start()
            self.write_known_hosts()
        return self.servers[name]

    @property
    def known_hosts(self) -> Path:
        return self.root / "known_hosts"

    @property
    def ssh_config(self) -> Path:
        return self.root / "ssh_config"

    def write_known_hosts(self) -> None:
        self.known_hosts.write_text("".join(s.known_hosts_line() for s in self.servers.values()))
        self.ssh_config.write_text("Host *\n  GlobalKnownHostsFile /dev/null\n")

    def host(self, server: str | Server, **more: object) -> dict[str, object]:
        """Return an inventory host; all its paths lie in the fleet's folder, which every server sees."""
        port = server.port if isinstance(server, Server) else self.server(server).port
        return {
            "address": "127.0.0.1",
            "port": port,
            "user": USER,
            "identity": str(self.root / "id"),
            "known_hosts": str(self.known_hosts),
            "ssh_config": str(self.ssh_config),
            **more,
        }

    def stop(self) -> None:
        """End the servers, and what sessions of theirs have left: an ssh between two of them outlives a flood."""
        for server in self.servers.values():
            server.stop()
        mark = os.fsencode(self.ssh_config)
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = entry.read_bytes().split(b"\0")
                if words[0] == b"ssh" and mark in words:
                    os.kill(int(entry.parent.name), signal.SIGKILL)


@contextlib.contextmanager
def private_fleet(root: Path) -> Iterator[Fleet]:
    """A fleet below `root`; hostkit's own known_hosts, which is the user's, is neither read nor written meanwhile."""
    fleet = Fleet(root)
    keygen(root / "id")  # whatever test comes first finds all that a client has
    fleet.write_known_hosts()
    before = os.environ.get("XDG_DATA_HOME")
    os.environ["XDG_DATA_HOME"] = str(root / "data")
    try:
        yield fleet
    finally:
        if before is None:
            del os.environ["XDG_DATA_HOME"]
        else:
            os.environ["XDG_DATA_HOME"] = before
        fleet.stop()


def inventory(**hosts: dict[str, object]) -> Inventory:
    return Inventory.model_validate({"hostkit": 1, "archive": "/nowhere", "hosts": hosts})
