"""train-status on the real fleet: each state of a training is set up for real, and must be called by its name."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.fleet import Fleet
from tests.fleet.processes import until
from tests.fleet.training import LOG, SCRIPT, Training

pytestmark = pytest.mark.fleet

EXIT = {"RUNNING": 0, "STARTING": 0, "STALLED": 2, "DEAD": 2, "UNKNOWN": 3}


def status(fleet: Fleet, *flags: str, inventory: Path | None = None) -> dict[str, Any]:
    """Run train-status and return its document, whose exit code must be the command's and the verdict's."""
    flags = (*flags, "--inventory", str(inventory)) if inventory else flags
    done = fleet.hostkit("train-status", "--json", *flags)
    assert done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["schema"] == "hostkit.train-status/1", document
    assert done.returncode == document["exit"] == EXIT[document["verdict"]], document["findings"]
    return document


def until_quiet(fleet: Fleet, inventory: Path | None = None, *, seconds: float = 90) -> dict[str, Any]:
    """Ask until the run's log is old enough to say DEAD; on the way there nothing but UNKNOWN may be said."""
    end = time.monotonic() + seconds
    while (found := status(fleet, inventory=inventory))["verdict"] == "UNKNOWN" and time.monotonic() < end:
        time.sleep(0.5)
    return found


def impatient(fleet: Fleet) -> Path:
    """Return an inventory in which three seconds of silence are a stall."""
    return fleet.inventory_with(lambda data: data["runs"]["drafter"]["timeouts"].update(stall="3s"))


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    import torch

    torch.save({"drafter": {"weight": torch.arange(6.0)}, "step": 20}, tmp_path / "sample.pt")
    return tmp_path / "sample.pt"


@pytest.mark.parametrize("host", ["ct200", "ct200-forward"])
def test_a_training_that_steps_is_running_by_either_login(fleet: Fleet, sample: Path, host: str) -> None:
    training = Training.begin(fleet, sample=sample)
    training.reach(45)
    inventory = fleet.inventory_with(lambda data: data["runs"]["drafter"].update(host=host))
    found = status(fleet, inventory=inventory)
    assert found["verdict"] == "RUNNING"
    assert [process["identity"]["pid"] for process in found["processes"]] == [training.pid]
    assert found["processes"][0]["identity"]["start_ticks"] == training.start_ticks()
    assert found["step"]["live"] >= 45
    assert found["step"]["saved"] >= 40
    assert found["step"]["lag"] >= 1


def test_a_killed_training_is_dead_and_never_called_running(fleet: Fleet) -> None:
    training = Training.begin(fleet)
    assert status(fleet)["verdict"] == "RUNNING"
    training.kill()
    found = until_quiet(fleet, impatient(fleet))
    assert found["verdict"] == "DEAD"
    assert found["processes"] == []


def test_a_stopped_training_is_stalled_at_once(fleet: Fleet) -> None:
    training = Training.begin(fleet)
    training.stop()
    assert status(fleet)["verdict"] == "STALLED"
    training.signal(signal.SIGCONT)
    training.go_on()
    assert status(fleet)["verdict"] == "RUNNING"


def test_a_training_whose_log_stands_still_is_stalled(fleet: Fleet) -> None:
    Training.begin(fleet, "--pause", "1000")
    found = until_stalled(fleet, impatient(fleet))
    assert found["verdict"] == "STALLED"


def until_stalled(fleet: Fleet, inventory: Path) -> dict[str, Any]:
    end = time.monotonic() + 90
    while (found := status(fleet, inventory=inventory))["verdict"] in (
        "RUNNING",
        "STARTING",
    ) and time.monotonic() < end:
        time.sleep(0.5)
    return found


def test_a_zombie_is_dead(fleet: Fleet) -> None:
    inventory = impatient(fleet)
    # the parent never waits: after the kill its child stays in the table, as a zombie
    parent = "import subprocess, sys, time; subprocess.Popen(sys.argv[1:]); time.sleep(1000)"
    keeper = Training.begin(fleet, argv=("/usr/bin/python3", "-c", parent, "/usr/bin/python3", SCRIPT))
    child = int(fleet.out("ct200", "pgrep", "-P", str(keeper.pid)))
    fleet.sh("ct200", ["kill", "-9", str(child)])
    until(lambda: f"{child} (python3) Z" in fleet.out("ct200", "cat", f"/proc/{child}/stat"), "a zombie")
    assert until_quiet(fleet, inventory)["verdict"] == "DEAD"


def test_a_proxmox_host_that_refuses_makes_it_unknown_and_is_named(fleet: Fleet) -> None:
    Training.begin(fleet)
    fleet.stop("pve")
    found = status(fleet)
    assert found["verdict"] == "UNKNOWN"
    assert "pve" in json.dumps(found["evidence"])


def test_a_host_that_hangs_costs_its_budget_and_is_named(fleet: Fleet) -> None:
    Training.begin(fleet)
    fleet.freeze("pve")
    began = time.monotonic()
    found = status(fleet)
    assert time.monotonic() - began < 60
    assert found["verdict"] == "UNKNOWN"
    assert "pve" in json.dumps(found["evidence"])


def test_a_cut_network_makes_it_unknown_and_names_the_first_hop(fleet: Fleet) -> None:
    Training.begin(fleet)
    fleet.cut()
    found = status(fleet)
    assert found["verdict"] == "UNKNOWN"
    assert "ct129" in json.dumps(found["evidence"])


def test_a_stopped_container_is_unknown_not_dead(fleet: Fleet) -> None:
    Training.begin(fleet)
    fleet.stop("ct200")
    found = status(fleet)
    assert found["verdict"] == "UNKNOWN"
    assert "ct200" in json.dumps(found["evidence"])


@pytest.mark.report("f7")
def test_a_container_that_has_moved_is_unknown_and_told_so(fleet: Fleet) -> None:
    Training.begin(fleet)
    (fleet.root("pve") / "etc/pve/lxc/200.conf").unlink()
    found = status(fleet)
    assert found["verdict"] == "UNKNOWN"
    assert "200" in json.dumps(found["evidence"])


def test_the_same_process_in_a_second_container_is_not_the_run(fleet: Fleet) -> None:
    Training.begin(fleet).kill()
    fleet.second_container()
    neighbour = Training.begin(fleet, host="ct201")
    found = until_quiet(fleet, impatient(fleet))
    assert found["verdict"] == "DEAD"
    assert found["processes"] == []
    neighbour.go_on()


@pytest.mark.report("a1")
def test_a_command_that_carries_the_pattern_is_not_the_run(fleet: Fleet) -> None:
    Training.begin(fleet).kill()
    words = ["sh", "-c", f"exec sleep 1000 # python3 {SCRIPT}"]
    fleet.start_process("ct200", ["sh", "-c", f"sleep 1000; : python3 {SCRIPT}"])
    wrapper = fleet.start_process("pve", ["pct", "exec", "200", "--", *words])
    found = until_quiet(fleet, impatient(fleet))
    assert found["verdict"] == "DEAD"
    assert found["processes"] == []
    assert wrapper in fleet.processes("pve")


@pytest.mark.report("a1")
def test_two_looks_at_once_do_not_take_each_other_for_the_run(fleet: Fleet) -> None:
    Training.begin(fleet).kill()
    inventory = impatient(fleet)
    until_quiet(fleet, inventory)
    command = fleet.hostkit_argv("train-status", "--json", "--inventory", str(inventory))
    looks = [
        subprocess.Popen(command, env=fleet.environment, cwd=fleet.home, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    documents = [json.loads(look.communicate(timeout=120)[0]) for look in looks]
    assert [document["verdict"] for document in documents] == ["DEAD"] * 3


@pytest.mark.report("a3")
def test_a_host_or_user_name_that_holds_the_pattern_is_not_the_run(fleet: Fleet) -> None:
    Training.begin(fleet).kill()
    fleet.sh("ct200", ["ln", "-s", "/bin/sleep", "/workspace/dhclient"])
    fleet.start_process("ct200", ["/workspace/dhclient", "1000"], cwd="/workspace")
    rename = "import socket, sys; socket.sethostname(sys.argv[1])"
    fleet.sh("ct200", ["/usr/bin/python3", "-c", rename, "train_dflash_pipeline.py"])
    assert until_quiet(fleet, impatient(fleet))["verdict"] == "DEAD"


@pytest.mark.report("a5")
def test_a_live_wrapper_alone_is_not_the_run(fleet: Fleet) -> None:
    script = f"/usr/bin/python3 {SCRIPT} --pidfile /workspace/ignored; sleep 1000"
    wrapper = Training.begin(fleet, argv=("sh", "-c", script))
    (fleet.root("ct200") / "workspace/run.pid").write_text(f"{wrapper.pid}\n")
    trainer = int(fleet.out("ct200", "cat", "/workspace/ignored"))
    fleet.sh("ct200", ["kill", "-9", str(trainer)])
    assert wrapper.pid in fleet.processes("ct200")
    assert until_quiet(fleet, impatient(fleet))["verdict"] == "DEAD"


def test_two_processes_that_fit_are_unknown_and_both_listed(fleet: Fleet) -> None:
    first = Training.begin(fleet)
    second = Training.begin(fleet, "--log", "/workspace/other.log")
    found = status(fleet)
    assert found["verdict"] == "UNKNOWN"
    assert {process["identity"]["pid"] for process in found["processes"]} == {first.pid, second.pid}


def test_two_like_runs_are_told_apart_by_their_arguments(fleet: Fleet) -> None:
    first = Training.begin(fleet, "--name", "ours")
    Training.begin(fleet, "--name", "theirs", "--log", "/workspace/other.log")
    inventory = fleet.inventory_with(
        lambda data: data["runs"]["drafter"]["process"].update(args=["--name", "ours"])
    )
    found = status(fleet, inventory=inventory)
    assert found["verdict"] == "RUNNING"
    assert [process["identity"]["pid"] for process in found["processes"]] == [first.pid]


def reuse_pid(fleet: Fleet, pid: int, argv: list[str]) -> None:
    """Give a process of ct200 a pid that is free again (the kernel counts on from ns_last_pid)."""
    spawn = (
        "import os, sys\n"
        "open('/proc/sys/kernel/ns_last_pid', 'w').write(str(int(sys.argv[1]) - 1))\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    os.setsid()\n"
        "    null = os.open('/dev/null', os.O_RDWR)\n"
        "    [os.dup2(null, n) for n in (0, 1, 2)]\n"
        "    os.execvp(sys.argv[2], sys.argv[2:])\n"
        "print(child)\n"
    )
    assert int(fleet.out("ct200", "/usr/bin/python3", "-c", spawn, str(pid), *argv)) == pid


def by_pidfile(fleet: Fleet, *, stall: str) -> Path:
    """Return an inventory that knows the run by its pidfile."""
    timeouts = {"startup": "60s", "stall": stall, "save": "60s"}
    process = {"pidfile": "/workspace/run.pid"}
    return fleet.inventory_with(
        lambda data: data["runs"]["drafter"].update(process=process, timeouts=timeouts)
    )


def test_another_program_with_the_runs_old_pid_is_not_the_run(fleet: Fleet) -> None:
    inventory = by_pidfile(fleet, stall="3s")
    training = Training.begin(fleet, "--pidfile", "/workspace/run.pid")
    assert status(fleet, inventory=by_pidfile(fleet, stall="60s"))["verdict"] == "RUNNING"
    training.kill()
    reuse_pid(fleet, training.pid, ["sleep", "1000"])
    until(
        lambda: fleet.processes("ct200").get(training.pid) == ["sleep", "1000"],
        "the pid taken by another program",
    )
    assert until_quiet(fleet, inventory)["verdict"] in ("DEAD", "UNKNOWN")


@pytest.mark.report("a11")
def test_a_pidfile_counts_in_its_own_container(fleet: Fleet) -> None:
    inventory = by_pidfile(fleet, stall="3s")
    Training.begin(fleet).kill()
    # a number that no process of the container gets while this test lasts
    fleet.sh("pve", ["sh", "-c", "echo 20000 >/proc/sys/kernel/ns_last_pid"])
    stranger = fleet.start_process("pve", ["sleep", "1000"])
    assert stranger > 20000
    (fleet.root("ct200") / "workspace/run.pid").write_text(f"{stranger}\n")
    found = until_quiet(fleet, inventory)
    assert found["verdict"] == "DEAD"
    assert found["processes"] == []


def test_a_run_that_left_no_trace_is_unknown(fleet: Fleet) -> None:
    found = status(fleet)
    assert found["verdict"] == "UNKNOWN"
    assert found["processes"] == []


def running(fleet: Fleet, host: str) -> set[tuple[str, ...]]:
    """Return what runs on a host; its server's own title says how busy it is, which is left out."""
    found = map(tuple, fleet.processes(host).values())
    return {words for words in found if "[listener]" not in words[0]}


def test_looking_leaves_nothing_on_any_host(fleet: Fleet) -> None:
    training = Training.begin(fleet)
    hosts = ("ct129", "pve", "ct200")
    fleet.settle()
    before = {host: running(fleet, host) for host in hosts}
    listing = [
        "find",
        "/root",
        "/workspace",
        "/tmp",
        "-xdev",
        "-not",
        "-path",
        LOG,
        "-printf",
        "%p %s %T@ %C@\n",
    ]
    files = {host: fleet.out(host, *listing) for host in hosts}
    for _ in range(3):
        assert status(fleet)["verdict"] == "RUNNING"
    until(
        lambda: all(running(fleet, host) == before[host] for host in hosts),
        "the end of what hostkit had started",
    )
    assert {host: fleet.out(host, *listing) for host in hosts} == files
    training.go_on()


def from_pve(fleet: Fleet, log: str | None, **process: str) -> Path:
    """Return an inventory that watches the container's training from its Proxmox host."""

    def change(data: dict[str, Any]) -> None:
        run = data["runs"]["drafter"]
        run.update(host="pve", log={"path": log} if log else {})
        run["process"].update(process)

    return fleet.inventory_with(change)


ROOTFS = "/var/lib/lxc/200/rootfs"


def test_a_container_s_process_seen_from_its_host_counts_where_the_declared_log_is_its_own(
    fleet: Fleet,
) -> None:
    Training.begin(fleet)
    for inventory in (
        from_pve(fleet, ROOTFS + LOG),
        from_pve(fleet, LOG, container="200"),
        from_pve(fleet, ROOTFS + LOG, container="any"),
    ):
        found = status(fleet, inventory=inventory)
        assert found["verdict"] == "RUNNING", found["evidence"]
        assert any(line.endswith("is in container 200") for line in found["evidence"]), found["evidence"]
    again = status(fleet, inventory=from_pve(fleet, LOG, container="200"))
    assert [finding["kind"] for finding in again["findings"]] == []


def test_a_container_s_process_seen_from_its_host_is_unknown_where_the_declared_log_is_another(
    fleet: Fleet,
) -> None:
    training = Training.begin(fleet)
    fleet.sh("pve", ["sh", "-c", "mkdir -p /workspace && echo step 9 loss 1 >/workspace/train.log"])
    found = status(fleet, inventory=from_pve(fleet, LOG))
    assert found["verdict"] == "UNKNOWN"
    assert "declare process.container (200)" in " ".join(found["evidence"])
    other = status(fleet, inventory=from_pve(fleet, LOG, container="201"))
    assert other["processes"] == []
    assert "is in container 200, not in 201" in " ".join(other["evidence"])
    training.go_on()


def test_a_log_renamed_under_a_live_training_is_read_all_the_same(fleet: Fleet) -> None:
    training = Training.begin(fleet)
    training.reach(5)
    (fleet.root("ct200") / "workspace/train.log").rename(fleet.root("ct200") / "workspace/first try")
    done = fleet.hostkit("train-status", "--json")
    found = json.loads(done.stdout)
    assert (found["verdict"], done.returncode) == ("RUNNING", 1), found["evidence"]
    assert found["step"]["live"] >= 5
    assert [finding["kind"] for finding in found["findings"]] == ["log-rotated"]
    assert "/workspace/first try" in found["findings"][0]["text"]
