"""A practice fleet for tests: its own folder of fleets, so that nobody else's is seen or ended."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hostkit.identity import Identity
from hostkit.inventory import load
from hostkit.practice import lifecycle, root, training
from hostkit.practice.furnish import Settings
from hostkit.practice.root import Root
from hostkit.transport.connections import Connections

SETTINGS = Settings(total_steps=100_000, save_every=10, stall="60s", startup="60s")


@pytest.fixture(scope="session")
def fleets() -> Iterator[Path]:
    """The TMPDIR of these tests' fleets; short, since a Unix socket's name is. Each fleet in it is ended."""
    folder = Path(tempfile.mkdtemp(prefix="hkp"))
    ours = folder / f"hostkit-practice-{os.getuid()}"
    ours.mkdir(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(root, "base", lambda: ours)
        yield folder
        left = [lifecycle.down(one).root for one in root.all_roots()]
    shutil.rmtree(folder)
    assert not left, f"tests left fleets up: {left}"


@pytest.fixture(scope="session")
def served(fleets: Path) -> Iterator[Root]:
    """A fleet whose servers are up, for tests that leave it as it was."""
    yield from _served()


@pytest.fixture
def own(fleets: Path) -> Iterator[Root]:
    """A fleet of the test's own, to break."""
    yield from _served()


def _served() -> Iterator[Root]:
    fleet = lifecycle.begin()
    try:
        lifecycle.furnish_and_serve(fleet, SETTINGS)
        yield fleet
    finally:
        assert lifecycle.down(fleet).survivors == []


@dataclass
class Live:
    """A fleet with a stand-in training that steps."""

    root: Root
    who: Identity

    def stop(self) -> None:
        """Stop it (SIGSTOP), and wait until it stands: a moment after the signal it may still save."""
        stop(self.who.pid)

    def saved(self) -> list[int]:
        return saved(self.root)


def stop(pid: int) -> None:
    """Stop a process, and wait until all of it stands."""
    os.kill(pid, signal.SIGSTOP)

    def stands() -> bool | None:
        stats = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/stat")]
        return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats) or None

    assert lifecycle.until(stands, 60)


def saved(root: Root) -> list[int]:
    """Return the steps whose checkpoint has its final name."""
    return sorted(
        int(file.parent.name.removeprefix("step_")) for file in root.checkpoints.glob("step_*/checkpoint.pt")
    )


@pytest.fixture
def live(own: Root) -> Live:
    """A fleet of the test's own, its training started through the chain and saved twice."""
    shutil.copy(Path(__file__).with_name("standin_trainer.py"), own.trainer)
    argv = [sys.executable, "-S", str(own.trainer), "--out", str(own.checkpoints), "--pace", "20"]
    with Connections(load(own.inventory)) as connections:
        who = training.start(own, connections.transport("ct200"), argv)
    training.wait_for_checkpoint(own, who, 2 * SETTINGS.save_every, 120, lambda _step: None)
    return Live(own, who)


class Ssh:
    """OpenSSH as a user types it, with the fleet's own configuration."""

    def __init__(self, fleet: Root) -> None:
        self.root = fleet

    def words(self, host: str) -> list[str]:
        """ct129: the login. pve: a tunnel through it. there: ct129's own ssh to pve."""
        inner = ["ssh", "-F", str(self.root.ct129.ssh_config), "pve"] if host == "there" else []
        return ["ssh", "-F", str(self.root.laptop.ssh_config), "ct129" if host == "there" else host, *inner]

    def run(self, host: str, command: bytes | str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = command.encode() if isinstance(command, str) else command
        if host == "there":  # read by ct129's shell before pve's
            command = shlex.quote(command.decode(errors="surrogateescape")).encode(errors="surrogateescape")
        argv = [*self.words(host), command]
        # Into files: the ssh that a ProxyJump starts inherits stderr, and may outlive the one that was asked for.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            done = subprocess.run(argv, input=stdin, stdout=out, stderr=err, timeout=120)
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(argv, done.returncode, out.read(), err.read())


@pytest.fixture(scope="session")
def ssh(served: Root) -> Ssh:
    return Ssh(served)
