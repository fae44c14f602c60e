"""Process 1 of pve: begun, recorded, ended; all of a fleet lives and dies with it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from tests.fleet import cgroups, network
from tests.fleet.hosts import CONTAINERS, HERE, shown
from tests.fleet.needs import SYSTEM_PATH
from tests.fleet.processes import Identity, argv, until
from tests.fleet.slot import Slot

ENV = {"PATH": SYSTEM_PATH, "HOME": "/root", "LANG": "C.UTF-8"}


def begin(slot: Slot, *, outlives_us: bool) -> tuple[subprocess.Popen[bytes], Identity]:
    """Begin it in namespaces of its own, in the fleet's control group; returns our child and process 1."""
    groups = cgroups.create(slot.cgroup)
    join = 'for group in $1; do echo $$ >"$group/cgroup.procs"; done; shift; exec "$@"'
    command = ["sh", "-c", join, "sh", " ".join(map(str, groups))]
    if not outlives_us:
        command += ["setpriv", "--pdeathsig", "KILL"]
    command += ["unshare", "-m", "-n", "-u", "-i", "-p", "--fork", "--kill-child"]
    command += ["sh", str(HERE / "pve_setup.sh"), str(slot.folder)]
    command += [" ".join(str(container.vmid) for container in CONTAINERS), *map(str, shown())]
    log = slot.folder / "pve.log"
    with log.open("wb") as output:
        outer = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=ENV,
            cwd="/",
            start_new_session=True,
            pass_fds=(slot.lock,) if outlives_us and slot.lock is not None else (),
        )

    def ready() -> int | None:
        if outer.poll() is not None:
            raise RuntimeError(f"pve did not come up: {log.read_text()}")
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        return next((int(pid) for pid in children if argv(int(pid))[1:2] == ["/usr/sbin/fleet-init"]), None)

    until(ready, "pve's process 1")
    return outer, Identity.of(ready() or 0)


def record(slot: Slot, init: Identity, owner: Identity | None) -> None:
    """Keep who is process 1, and whose fleet it is."""
    slot.record.write_text(json.dumps({"init": init.document(), "owner": owner and owner.document()}))


def recorded(slot: Slot) -> tuple[Identity | None, Identity | None]:
    """Return process 1 and the owner, as far as they were kept."""
    try:
        parts = json.loads(slot.record.read_text())
        return Identity(**parts["init"]), Identity(**parts["owner"]) if parts["owner"] else None
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None, None


def clear(slot: Slot) -> None:
    """Remove all that a fleet of this number has left, also one whose owner was killed; nothing else."""
    init, _owner = recorded(slot)
    if init:
        init.kill()  # with it go its pid namespace, and so the mounts and links that only its namespaces held
    cgroups.remove(slot.cgroup)
    network.disconnect(slot)
    shutil.rmtree(slot.folder, ignore_errors=True)
