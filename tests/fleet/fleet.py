"""One fleet: raised in about a second, taken down without a trace, and played with in between."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import yaml

from tests.fleet import cgroups, network, pve
from tests.fleet.hosts import CHECKOUT, CONTAINERS, PVE, Container, Keys, lay_out
from tests.fleet.inventory_file import inventory_text
from tests.fleet.needs import SYSTEM_PATH
from tests.fleet.processes import Identity, argv, until, within
from tests.fleet.slot import Slot, claim, recorded_slots


class Fleet:
    """A laptop (this machine), ct129, pve behind it, and ct200 in pve. `ct201` is there, but not started."""

    def __init__(self, slot: Slot, init: Identity, owner: Identity | None = None) -> None:
        self.slot = slot
        self.init = init  # process 1 of pve, which owns all the others
        self.owner = owner  # the test run that it belongs to, if any
        self._child: subprocess.Popen[bytes] | None = None
        self.folder = slot.folder
        self.home = self.folder / "laptop"
        self.inventory_path = self.home / "inventory.yaml"
        self.archive = self.home / "archive"

    # --- up and down

    @classmethod
    def up(cls, preferred: int = 1, *, outlives_us: bool = False) -> Self:
        """Raise a fleet. It ends with this process, however that ends, unless `outlives_us`."""
        slot = claim(preferred)
        try:
            pve.clear(slot)
            slot.folder.mkdir(mode=0o700)
            keys = Keys(slot.folder / "keys")
            lay_out(slot, keys)
            child, init = pve.begin(slot, outlives_us=outlives_us)
            fleet = cls(slot, init, None if outlives_us else Identity.of(os.getpid()))
            fleet._child = child
            pve.record(slot, init, fleet.owner)
            network.connect(slot, fleet.init.pid)
            for container in CONTAINERS:
                if container.starts:
                    fleet.start(container.name)
            fleet._furnish(keys)
            fleet.listen(slot.outer(129))
        except BaseException:
            pve.clear(slot)
            slot.release()
            raise
        return fleet

    @classmethod
    def found(cls, number: int) -> Self | None:
        """Return the fleet that runs under this number, if one does."""
        slot = Slot(number)
        init, owner = pve.recorded(slot)
        return cls(slot, init, owner) if init and init.alive() else None

    def down(self) -> None:
        """Take everything away again."""
        pve.clear(self.slot)
        if self._child:
            self._child.wait(60)
        self.slot.release()

    def _furnish(self, keys: Keys) -> None:
        """Give the laptop its folder: key, known_hosts, inventory, and a home that is not the user's."""
        for part in (self.home, self.archive):
            part.mkdir(mode=0o700)
        known = (
            f"ct129,{self.slot.outer(129)} {keys.public('host-ct129')}\n"
            f"pve,{self.slot.inner(PVE)} {keys.public('host-pve')}\n"
        )
        (self.home / "known_hosts").write_text(known)
        self.inventory_path.write_text(inventory_text(self))

    @property
    def identity(self) -> Path:
        """The laptop's private key."""
        return self.folder / "keys/laptop"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a hostkit process on the laptop: nothing of the user's is read or written."""
        kept = {
            name: os.environ[name] for name in ("PATH", "LANG", "TERM", "SSL_CERT_FILE") if name in os.environ
        }
        homes = {
            f"XDG_{kind}_HOME": str(self.home / kind.lower()) for kind in ("CONFIG", "STATE", "CACHE", "DATA")
        }
        return (
            kept
            | homes
            | {
                "HOME": str(self.home),
                "XDG_RUNTIME_DIR": str(self.home),
                "HOSTKIT_INVENTORY": str(self.inventory_path),
                "PYTHONPATH": str(CHECKOUT),
                "PYTHONDONTWRITEBYTECODE": "1",
                "OMP_NUM_THREADS": "1",
            }
        )

    # --- on a host, past ssh: to set a scene and to look at it

    def sh(
        self, host: str, argv: Sequence[str], *, stdin: bytes = b"", check: bool = True, timeout: float = 60
    ) -> subprocess.CompletedProcess[bytes]:
        """Run argv on a host by namespaces, with no network in between."""
        done = subprocess.run(
            [*self._enter(host), *argv],
            input=stdin,
            check=False,
            capture_output=True,
            timeout=timeout,
            env=pve.ENV,
        )
        if check and done.returncode:
            raise RuntimeError(f"{list(argv)} on {host} ended with {done.returncode}: {done.stderr.decode()}")
        return done

    def out(self, host: str, *argv: str) -> str:
        """Run argv on a host and return what it printed."""
        return self.sh(host, argv).stdout.decode()

    def start_process(self, host: str, argv: Sequence[str], *, log: str = "/dev/null", cwd: str = "/") -> int:
        """Start a process of its own session on a host; returns its pid there. What it prints is appended to `log`."""
        # descriptor 3 carries the pid out; the process itself keeps nothing of ours open
        inner = 'echo $$ >&3; exec 3>&-; exec "$@"'
        script = f'cd "$1"; exec 3>&1 >>"$2" 2>&1 </dev/null; shift 2; setsid sh -c \'{inner}\' sh "$@" &'
        return int(self.out(host, "sh", "-c", script, "sh", cwd, log, *argv))

    def root(self, host: str) -> Path:
        """Return the host's file system as seen from here."""
        return Path(f"/proc/{self.init_of(host)}/root")

    def init_of(self, host: str) -> int:
        """Return the pid, as seen from here, of process 1 of a host."""
        if host == "pve":
            return self.init.pid
        for pid in cgroups.members(f"{self.slot.cgroup}/lxc.payload.{_container(host).vmid}"):
            if _innermost_pid(pid) == 1:
                return pid
        raise LookupError(f"{host} is not running")

    def processes(self, host: str) -> dict[int, list[str]]:
        """Return the argv of the processes of a host by their pid on it."""
        found = ((_innermost_pid(pid), argv(pid)) for pid in within(self.init_of(host)))
        return {pid: words for pid, words in found if pid and words}

    def _enter(self, host: str) -> list[str]:
        into_pve = ["nsenter", "-t", str(self.init.pid), "-m", "-n", "-u", "-i", "-p", "--root", "--wd"]
        if host == "pve":
            return into_pve
        attach = ["lxc-attach", "-n", str(_container(host).vmid), "--clear-env", "-v", "HOME=/root"]
        return [*into_pve, *attach, "-v", "PATH=/usr/local/sbin:/usr/local/bin:" + SYSTEM_PATH, "--"]

    # --- what may befall it

    def start(self, host: str) -> None:
        """Start a container, or pve's sshd."""
        self.sh(
            "pve", ["/usr/sbin/sshd"] if host == "pve" else ["lxc-start", "-n", str(_container(host).vmid)]
        )
        if host == "pve":
            until(lambda: self._sshd(host), "pve's sshd")

    def stop(self, host: str) -> None:
        """Stop a container at once; of pve only its sshd goes, with all sessions."""
        if host == "pve":
            self._signal_sshd(host, signal.SIGKILL)
        else:
            vmid = _container(host).vmid
            self.sh("pve", ["lxc-stop", "-k", "-n", str(vmid)])
            # its monitor answers for a moment longer, and whoever asks it then waits for ever
            until(lambda: not cgroups.members(f"{self.slot.cgroup}/lxc.monitor.{vmid}"), f"the end of {host}")

    def freeze(self, host: str) -> None:
        """Make a host hang: connections are taken, but nobody answers."""
        if self._sshd(host):
            self._signal_sshd(host, signal.SIGSTOP)
        else:
            self.sh("pve", ["lxc-freeze", "-n", str(_container(host).vmid)])

    def thaw(self, host: str) -> None:
        if self._sshd(host):
            self._signal_sshd(host, signal.SIGCONT)
        else:
            self.sh("pve", ["lxc-unfreeze", "-n", str(_container(host).vmid)])

    def cut(self, *, inner: bool = False) -> None:
        """Cut the network between laptop and ct129, or (inner) between ct129 and pve. Packets vanish silently."""
        network.unplug(self.init.pid, inner=inner)

    def mend(self, *, inner: bool = False) -> None:
        network.plug(self.init.pid, inner=inner)

    def fill_disk(self, host: str, path: str, *, free: int = 1 << 20) -> None:
        """Give a folder a file system of its own with `free` bytes left on it (what the folder held is hidden)."""
        size = max(free * 2, 4 << 20)
        script = (
            'mkdir -p "$1" && mount -t tmpfs -o "size=$2" tmpfs "$1" && head -c "$3" /dev/zero >"$1/ballast"'
        )
        self.sh(host, ["sh", "-c", script, "sh", path, str(size), str(size - free)])

    def second_container(self) -> str:
        """Start ct201 and return its name. It has its own process table on the same Proxmox host, and no network."""
        self.start("ct201")
        return "ct201"

    def _sshd(self, host: str) -> list[int]:
        return [pid for pid in within(self.init_of(host)) if "".join(argv(pid)[:1]).startswith("sshd:")]

    def _signal_sshd(self, host: str, number: signal.Signals) -> None:
        for pid in self._sshd(host):
            with contextlib.suppress(ProcessLookupError):  # a session may end at this moment
                os.kill(pid, number)
        if number == signal.SIGKILL:
            until(lambda: not self._sshd(host), f"the end of sshd on {host}")

    # --- waiting

    def listen(self, address: str) -> None:
        """Wait until an ssh server greets at an address."""

        def greets() -> bool:
            try:
                with socket.create_connection((address, 22), 1) as connection:
                    return connection.recv(4) == b"SSH-"
            except OSError:
                return False

        until(greets, f"an ssh server at {address}")

    def settle(self) -> None:
        """Wait until no ssh session is left on any host: each ends a moment after the command that it was for."""

        def sessions() -> list[str]:
            running = [words for host in ("ct129", "pve") for words in self.processes(host).values()]
            first = [words[0] for words in running]
            return [word for word in first if word.startswith("sshd:") and "[listener]" not in word]

        until(lambda: not sessions(), "the end of all ssh sessions")

    # --- hostkit, as a user on the laptop runs it

    def inventory_with(self, change: Callable[[dict[str, Any]], object]) -> Path:
        """Write the inventory with a change made to its data; returns the new file."""
        data = yaml.safe_load(self.inventory_path.read_text())
        change(data)
        handle, name = tempfile.mkstemp(suffix=".yaml", dir=self.home)
        with open(handle, "w") as file:
            yaml.safe_dump(data, file)
        return Path(name)

    def hostkit(
        self, *arguments: str, timeout: float = 120, check: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run the hostkit command with the fleet's inventory and a home of its own."""
        return subprocess.run(
            self.hostkit_argv(*arguments),
            env=self.environment,
            cwd=self.home,
            text=True,
            capture_output=True,
            timeout=timeout,
            check=check,
            stdin=subprocess.DEVNULL,
        )

    @staticmethod
    def hostkit_argv(*arguments: str) -> list[str]:
        return [sys.executable, "-c", "from hostkit.cli import main; main()", *arguments]


def running() -> Iterator[Fleet]:
    """Yield the fleets that are up on this machine."""
    for slot in recorded_slots():
        fleet = Fleet.found(slot.number)
        if fleet:
            yield fleet


def _container(host: str) -> Container:
    return next(container for container in CONTAINERS if container.name == host)


def _innermost_pid(pid: int) -> int | None:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    return int(next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[-1])
