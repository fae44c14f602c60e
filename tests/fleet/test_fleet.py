"""The fleet is what it claims to be, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fleet import cgroups
from tests.fleet.fleet import Fleet
from tests.fleet.hosts import CHECKOUT
from tests.fleet.processes import until

pytestmark = pytest.mark.fleet


def traces(fleet: Fleet) -> list[str]:
    """Return what this machine shows of a fleet, one line each."""
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    routes = subprocess.run(["ip", "-o", "route"], capture_output=True, text=True, check=True).stdout
    mounts = Path("/proc/mounts").read_text()
    words = {"link": fleet.slot.link, "route": fleet.slot.inner(0), "mount": str(fleet.folder) + "/"}
    found = [
        kind for kind, text in (("link", links), ("route", routes), ("mount", mounts)) if words[kind] in text
    ]
    found += [f"group {root}" for root in cgroups.hierarchies() if (root / fleet.slot.cgroup).exists()]
    if fleet.folder.exists():
        found.append("folder")
    if fleet.init.alive():
        found.append("process")
    return found


def ssh(fleet: Fleet, *words: str) -> subprocess.CompletedProcess[str]:
    options = ["-F", "none", "-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={fleet.home / 'known_hosts'}"]
    options += ["-o", "IdentitiesOnly=yes", "-i", str(fleet.identity), "-l", "root"]
    return subprocess.run(["ssh", *options, *words], capture_output=True, text=True, timeout=60, check=False)


def test_a_fleet_leaves_nothing_behind() -> None:
    fleet = Fleet.up(50)
    try:
        before = traces(fleet)
    finally:
        fleet.down()
    assert {word.split()[0] for word in before} >= {"link", "route", "group", "folder", "process"}
    assert traces(fleet) == []


def test_what_a_killed_owner_left_is_cleared_by_the_next() -> None:
    raise_one = "import sys; from tests.fleet.fleet import Fleet; fleet = Fleet.up(60)"
    program = f"{raise_one}; print(fleet.slot.number, flush=True); sys.stdin.read()"
    owner = subprocess.Popen(
        [sys.executable, "-c", program], cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert owner.stdout
    assert owner.stdin
    number = int(owner.stdout.readline())
    left = Fleet.found(number)
    assert left
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdin.close()
    owner.stdout.close()
    until(lambda: not left.init.alive(), "the fleet's end with its owner")
    assert "folder" in traces(left)
    fresh = Fleet.up(number)
    try:
        assert fresh.slot.number == number
        assert fresh.init != left.init
    finally:
        fresh.down()
    assert traces(left) == []


def test_two_fleets_stand_side_by_side(fleet: Fleet) -> None:
    other = Fleet.up(fleet.slot.number)
    try:
        assert other.slot.number != fleet.slot.number
        assert other.out("ct200", "hostname") == fleet.out("ct200", "hostname") == "ct200\n"
    finally:
        other.down()
    assert fleet.out("ct129", "hostname") == "ct129\n"


def test_ct129_is_the_only_way_in(shared_fleet: Fleet) -> None:
    fleet = shared_fleet
    for last in (6, 200, 129):
        with pytest.raises(OSError, match="No route to host"):
            socket.create_connection((fleet.slot.inner(last), 22), 2).close()
    assert ssh(fleet, fleet.slot.outer(129), "hostname").stdout == "ct129\n"
    assert ssh(fleet, fleet.slot.outer(129), "ssh pve pct exec 200 -- hostname").stdout == "ct200\n"


def test_the_tunnelled_login_uses_the_laptops_own_key(shared_fleet: Fleet) -> None:
    fleet = shared_fleet
    tunnel = (
        f"ssh -F none -o BatchMode=yes -o UserKnownHostsFile={fleet.home}/known_hosts -i {fleet.identity}"
    )
    proxy = f"ProxyCommand={tunnel} -W %h:%p root@{fleet.slot.outer(129)}"
    answer = ssh(fleet, "-o", proxy, fleet.slot.inner(6), "hostname")
    assert answer.stdout == "pve\n", answer.stderr


def test_hosts_see_interpreter_and_checkout_but_nothing_of_the_users_home(shared_fleet: Fleet) -> None:
    for host in ("ct129", "pve", "ct200"):
        assert shared_fleet.out(host, sys.executable, "-c", "import pydantic; print('runs')") == "runs\n"
        assert shared_fleet.out(host, "ls", f"{CHECKOUT}/hostkit/__init__.py")
        assert shared_fleet.sh(host, ["touch", f"{CHECKOUT}/written"], check=False).returncode != 0
        assert shared_fleet.sh(host, ["touch", f"{sys.prefix}/written"], check=False).returncode != 0
        assert shared_fleet.out(host, "cat", "/root/.bashrc", "/root/.profile") == ""
    assert shared_fleet.out("ct200", "ls", "-A", "/root/.ssh") == ""


def test_containers_have_process_tables_and_boot_ids_of_their_own(fleet: Fleet) -> None:
    fleet.second_container()
    hosts = ("pve", "ct129", "ct200", "ct201")
    boots = {fleet.out(host, "cat", "/proc/sys/kernel/random/boot_id") for host in hosts}
    spaces = {os.readlink(f"/proc/{fleet.init_of(host)}/ns/pid") for host in hosts}
    assert len(boots) == len(spaces) == len(hosts)


def test_pct_exec_speaks_as_the_original_does(shared_fleet: Fleet) -> None:
    def pct(*words: str) -> tuple[int, str]:
        answer = shared_fleet.sh("pve", ["pct", *words], check=False)
        return answer.returncode, (answer.stdout + answer.stderr).decode()

    assert pct("exec", "200", "--", "printf", "%s|", "a b", "$HOME", "-n", "*") == (0, "a b|$HOME|-n|*|")
    assert pct("exec", "200", "--", "sh", "-c", "exit 3") == (3, "")
    assert pct("exec", "200", "--", "no-such-program")[0] == 127
    assert pct("exec", "200", "--", "sh", "-c", "kill -9 $$")[0] == 137
    assert pct("exec", "200", "ls", "-l")[1].startswith("400 Parameter verification failed")
    assert "does not exist" in pct("exec", "999", "--", "true")[1]
    assert pct("exec", "201", "--", "true") == (255, "container '201' not running!\n")
    assert pct("status", "201") == (0, "status: stopped\n")
    assert pct("push", "200", "/no/such/file", "/tmp/x")[0] == 0  # the original's exit code says nothing
    environment = pct("exec", "200", "--", "env")[1]
    assert "PATH=/sbin:/bin:/usr/sbin:/usr/bin\n" in environment


def test_a_cut_cable_is_silent_and_mends(fleet: Fleet) -> None:
    fleet.cut()
    with pytest.raises(OSError, match=r"timed out|No route"):
        socket.create_connection((fleet.slot.outer(129), 22), 0.5).close()
    fleet.mend()
    fleet.listen(fleet.slot.outer(129))
    fleet.cut(inner=True)
    assert ssh(fleet, fleet.slot.outer(129), "ssh -o ConnectTimeout=1 pve true").returncode == 255


def test_a_frozen_host_takes_the_connection_and_says_nothing(fleet: Fleet) -> None:
    fleet.freeze("ct129")
    with socket.create_connection((fleet.slot.outer(129), 22), 2) as connection:
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(4)
    fleet.thaw("ct129")
    fleet.listen(fleet.slot.outer(129))


def test_a_full_disk_is_full(fleet: Fleet) -> None:
    fleet.fill_disk("ct129", "/root/eval", free=64 << 10)
    answer = fleet.sh("ct129", ["dd", "if=/dev/zero", "of=/root/eval/file", "bs=64k", "count=4"], check=False)
    assert b"No space left" in answer.stderr


def test_a_host_that_is_stopped_refuses_and_comes_back(fleet: Fleet) -> None:
    fleet.stop("pve")
    assert "refused" in ssh(fleet, fleet.slot.outer(129), "ssh pve true").stderr
    assert fleet.out("ct200", "hostname") == "ct200\n"
    fleet.start("pve")
    assert ssh(fleet, fleet.slot.outer(129), "ssh pve pct exec 200 -- echo back").stdout == "back\n"
    fleet.stop("ct200")
    assert "not running" in ssh(fleet, fleet.slot.outer(129), "ssh pve pct exec 200 -- true").stderr


def test_a_process_outlives_the_command_that_started_it(fleet: Fleet) -> None:
    pid = fleet.start_process("ct200", ["sleep", "1000"], log="/workspace/log")
    until(lambda: fleet.processes("ct200")[pid] == ["sleep", "1000"], "the shell that starts it to become it")
