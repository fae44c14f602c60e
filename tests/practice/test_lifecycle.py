"""A fleet comes up beside others, and goes without leaving a process or a file."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hostkit.errors import ConfigError, HostkitError
from hostkit.inventory import load
from hostkit.jobs import JobSpec, Supervisor
from hostkit.practice import furnish, lifecycle, processes, requirements, training
from hostkit.practice.root import MARK, Root, all_roots
from hostkit.transport.connections import Connections
from tests.practice.conftest import SETTINGS, Live, Ssh

IGNORES_SIGTERM = "import signal; signal.signal(15, signal.SIG_IGN); print(1, flush=True); signal.pause()"


def test_every_host_of_the_inventory_answers(served: Root) -> None:
    with Connections(load(served.inventory)) as connections:
        for host in ("ct129", "pve", "ct200"):
            assert connections.transport(host).run(["echo", "a  b"]).stdout == b"a  b\n"


def test_a_tunnel_with_the_laptop_s_own_keys_works_as_well(served: Root, tmp_path: Path) -> None:
    inner = served.inventory.read_text().replace("login: there", "login: forward")
    forward = tmp_path / "forward.yaml"
    forward.write_text(inner.replace(str(served.ct129.ssh), str(served.laptop.ssh)))
    with Connections(load(forward)) as connections:
        assert connections.transport("ct200").run(["echo", "hi"]).stdout == b"hi\n"


def test_nobody_else_can_look_into_a_fleet(served: Root) -> None:
    assert stat.S_IMODE(served.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(served.laptop.identity.stat().st_mode) == 0o600


def test_the_training_is_a_process_of_its_own_that_steps(live: Live) -> None:
    first = training.live_step(live.root)
    assert lifecycle.until(lambda: True if training.live_step(live.root) > first else None, 60)
    assert os.getsid(live.who.pid) not in (os.getsid(0), live.who.pid)
    assert processes.alive(live.who)


def test_down_leaves_no_process_and_no_file(live: Live) -> None:
    ssh = Ssh(live.root)
    commands = [subprocess.Popen([*ssh.words(way), "sleep 600"]) for way in ("ct129", "there")]
    escaped = live.root.ct129.home / "escaped"
    ssh.run("ct129", f"setsid -f sh -c 'echo $$ >{escaped}; exec sleep 600' </dev/null >/dev/null 2>&1")
    hidden = lifecycle.until(
        lambda: processes.of(int(escaped.read_text() or 0)) if escaped.exists() else None, 60
    )
    assert lifecycle.until(lambda: len(processes.marked(live.root)) >= 6 or None, 60)
    everyone = processes.marked(live.root)
    assert {live.who, hidden} <= set(everyone)
    ended = lifecycle.down(live.root)
    assert ended.survivors == []
    assert ended.processes >= 5  # two servers, the training, the escaped, a command
    assert [who for who in everyone if processes.alive(who)] == []
    assert not live.root.path.exists()
    for command in commands:
        command.wait(60)


def test_down_ends_a_job_that_has_an_environment_of_its_own(own: Root) -> None:
    inventory = load(own.inventory)
    code = "import time; print('up', flush=True); time.sleep(600)"
    spec = JobSpec(kind="eval", name="left behind", argv=(sys.executable, "-S", "-c", code))
    with Connections(inventory) as connections:
        state = Supervisor(connections.transport("ct129"), inventory.hosts["ct129"]).start(spec)
    assert state.state == "running"
    assert state.identity is not None
    assert state.identity.payload is not None
    assert state.identity.payload in processes.marked(own)
    assert lifecycle.down(own).survivors == []
    assert not processes.alive(state.identity.payload)


def test_a_stopped_process_and_one_that_ignores_sigterm_are_ended_too(own: Root) -> None:
    stubborn = subprocess.Popen(
        [
            sys.executable,
            "-S",
            "-c",
            "import signal; signal.signal(15, signal.SIG_IGN); print(1, flush=True); signal.pause()",
        ],
        env={MARK: str(own.path)},
        stdout=subprocess.PIPE,
    )
    stopped = subprocess.Popen(["sleep", "600"], env={MARK: str(own.path), "PATH": os.environ["PATH"]})
    assert stubborn.stdout is not None
    stubborn.stdout.readline()
    stopped.send_signal(signal.SIGSTOP)
    assert lifecycle.down(own).survivors == []
    assert (stubborn.wait(60), stopped.wait(60)) == (-signal.SIGKILL, -signal.SIGTERM)
    stubborn.stdout.close()


def test_a_process_that_got_the_number_of_an_ended_one_is_never_signalled(own: Root) -> None:
    with subprocess.Popen(["sleep", "600"]) as bystander:
        who = processes.note(own, "somebody who ended", bystander.pid)
        assert who is not None
        other = who.model_copy(update={"start_ticks": who.start_ticks - 1})
        own.processes.write_text(
            own.processes.read_text().replace(who.model_dump_json()[1:-1], "").rpartition("{")[0]
        )
        with own.processes.open("a") as record:
            record.write(json.dumps({"what": "ended", "identity": other.model_dump()}) + "\n")
        lifecycle.down(own)
        assert bystander.poll() is None
        bystander.kill()


def test_two_fleets_at_once_do_not_see_each_other(served: Root, live: Live) -> None:
    assert served.path != live.root.path
    assert served.port_file.read_text() != live.root.port_file.read_text()
    lifecycle.down(live.root)
    assert Ssh(served).run("there", "echo here").stdout == b"here\n"


def test_a_fleet_whose_command_was_killed_is_found_and_ended(fleets: Path) -> None:
    code = (
        "from hostkit.practice import lifecycle, furnish; import os\n"
        "root = lifecycle.begin(); lifecycle.furnish_and_serve(root, furnish.Settings())\n"
        "print(root.path, flush=True); os.kill(os.getpid(), 9)"
    )
    environment = os.environ | {"TMPDIR": str(fleets)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, timeout=120)
    root = Root(Path(done.stdout.decode().strip()))
    assert root in lifecycle.left_over()
    everyone = processes.marked(root)
    assert len(everyone) == 2
    lifecycle.down(root)
    assert [who for who in everyone if processes.alive(who)] == []
    assert root not in all_roots()


def test_a_server_that_cannot_start_is_told_with_its_last_words(own: Root) -> None:
    lifecycle.stop_server(own, "pve")
    own.pve.host_key.write_text("no key")
    with pytest.raises(HostkitError, match=r"SSH server of pve did not start: .*[Kk]ey"):
        lifecycle.start_server(own, "pve")


def test_a_training_that_ends_at_once_is_told_with_its_last_words(own: Root) -> None:
    argv = [sys.executable, "-S", "-c", "import time; time.sleep(0.5); raise SystemExit('no such target')"]
    with Connections(load(own.inventory)) as connections:
        who = training.start(own, connections.transport("ct200"), argv)
    with pytest.raises(HostkitError, match="ended by itself: no such target"):
        training.wait_for_checkpoint(own, who, 10, 120, lambda _step: None)


@pytest.mark.parametrize("missing", ["ssh", "rsync"])
def test_only_ssh_is_needed_and_a_missing_one_is_named_in_one_line(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        requirements.shutil, "which", lambda name: None if name == missing else f"/usr/bin/{name}"
    )
    if missing == "rsync":  # copies are streamed
        requirements.check(training=False)
        return
    with pytest.raises(ConfigError) as caught:
        requirements.check(training=False)
    assert str(caught.value) == "practice: this machine lacks ssh (try: apt install openssh-client)"


def test_little_memory_and_a_missing_package_are_told_together_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requirements, "free_memory", lambda: 100 * 2**20)
    monkeypatch.setattr(requirements, "find_spec", lambda name: None if name == "torch" else object())
    with pytest.raises(ConfigError) as caught:
        requirements.check()
    text = str(caught.value)
    assert "\n" not in text
    assert "torch (try: pip install -e '.[practice]' in the checkout)" in text
    assert "memory: 100 MiB available, 2048 MiB needed" in text


def test_the_documented_sample_is_what_a_fleet_gets() -> None:
    sample = Path(__file__).parents[2] / "inventory" / "practice.yaml"
    settings = furnish.Settings(python="/home/sam/hostkit/.venv/bin/python")
    text = furnish.inventory_text("/tmp/hostkit-practice-1000/x7k2m9qd", 40129, "sam", settings)
    assert sample.read_text() == text
    assert set(load(sample).hosts) == {"ct129", "pve", "ct200"}


def test_the_settings_reach_the_inventory(served: Root) -> None:
    run = load(served.inventory).runs["drafter"]
    assert (run.total_steps, run.timeouts.stall) == (SETTINGS.total_steps, 60.0)
