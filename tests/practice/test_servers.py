"""The SSH servers behave as sshd does, as far as a client can tell."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from hostkit.practice import lifecycle, processes
from hostkit.practice.root import PVE_NAME, Root
from tests.practice.conftest import Ssh

WAYS = ("ct129", "pve", "there")
MEGABYTES = os.urandom(2**20) * 8


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("code", [0, 1, 3, 127, 137, 255])
def test_an_exit_code_is_passed_on(ssh: Ssh, way: str, code: int) -> None:
    assert ssh.run(way, f"exit {code}").returncode == code


@pytest.mark.parametrize("way", WAYS)
def test_megabytes_pass_both_ways_unchanged_and_whole(ssh: Ssh, way: str) -> None:
    done = ssh.run(way, "cat; echo end >&2; exit 7", MEGABYTES)
    assert (done.returncode, done.stdout == MEGABYTES, done.stderr) == (7, True, b"end\n")


@pytest.mark.parametrize("way", WAYS)
def test_a_command_that_reads_no_input_ends_well(ssh: Ssh, way: str) -> None:
    assert ssh.run(way, "echo done", MEGABYTES).stdout == b"done\n"


@pytest.mark.parametrize(
    "word", [b"a b", b"'", b'"', b"$HOME", b"`id`", b"new\nline", b"-lead", "ü".encode(), b"\xff\xfe", b"*"]
)
def test_a_word_arrives_as_it_is_also_when_it_is_no_utf8(ssh: Ssh, word: bytes) -> None:
    quoted = b"'" + word.replace(b"'", b"'\\''") + b"'"
    for way in WAYS:
        assert ssh.run(way, b"printf %s " + quoted).stdout == word


def test_output_of_a_background_process_is_waited_for(ssh: Ssh) -> None:
    done = ssh.run("there", "(sleep 0.3; echo late) & echo early")
    assert sorted(done.stdout.splitlines()) == [b"early", b"late"]


def test_a_command_killed_by_a_signal_is_no_exit_code(ssh: Ssh) -> None:
    done = ssh.run("ct129", "kill -9 $$")
    assert done.returncode == 255  # what OpenSSH makes of an exit signal


def test_a_login_gets_a_clean_environment_with_pct_on_its_path(
    ssh: Ssh, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {line.partition(b"=")[0] for line in ssh.run("pve", "env").stdout.splitlines()}
    assert names == {
        *(b"HOME", b"USER", b"LOGNAME", b"SHELL", b"PATH", b"PWD", b"TMPDIR"),
        *(b"SSH_CONNECTION", b"HOSTKIT_PRACTICE"),
    }
    home = ssh.run("pve", "pwd; command -v pct").stdout.decode().split()
    assert home == [str(ssh.root.pve.home), str(ssh.root.pve.bin / "pct")]


def test_pve_is_reached_through_ct129_only(ssh: Ssh) -> None:
    tunnel = [
        "ssh",
        "-F",
        str(ssh.root.laptop.ssh_config),
        "-o",
        "ProxyJump=none",
        "-o",
        "ProxyCommand=none",
        "pve",
        "true",
    ]
    direct = subprocess.run(tunnel, capture_output=True, timeout=120)
    assert direct.returncode == 255
    assert b"Could not resolve" in direct.stderr or b"not known" in direct.stderr


@pytest.mark.parametrize("target", ["127.0.0.1:22", f"{PVE_NAME}:23", "localhost:80"])
def test_ct129_tunnels_to_nothing_but_pve(ssh: Ssh, target: str) -> None:
    done = subprocess.run([*ssh.words("ct129")[:-1], "-W", target, "ct129"], capture_output=True, timeout=120)
    assert done.returncode == 255
    assert b"no route from ct129" in done.stderr


def test_a_stranger_s_key_is_refused(ssh: Ssh, tmp_path: Path) -> None:
    key = tmp_path / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    own = [
        "-F",
        "none",
        "-i",
        str(key),
        "-o",
        "IdentitiesOnly=yes",
        "-o",
        "IdentityAgent=none",
        "-o",
        "BatchMode=yes",
    ]
    known = [
        "-o",
        f"UserKnownHostsFile={ssh.root.laptop.known_hosts}",
        "-p",
        ssh.root.port_file.read_text().strip(),
    ]
    done = subprocess.run(["ssh", *own, *known, "127.0.0.1", "true"], capture_output=True, timeout=120)
    assert done.returncode == 255
    assert b"Permission denied" in done.stderr


def test_a_client_that_is_killed_leaves_its_command_running_and_the_server_well(own: Root) -> None:
    ssh = Ssh(own)
    file = own.ct129.home / "pid"
    with subprocess.Popen([*ssh.words("ct129"), f"echo $$ >{file}; exec sleep 600"]) as client:
        pid = lifecycle.until(lambda: int(file.read_text() or 0) or None if file.exists() else None, 60)
        assert pid is not None
        client.send_signal(signal.SIGKILL)
    who = processes.of(pid)
    assert who is not None
    assert ssh.run("ct129", "echo well").stdout == b"well\n"
    assert processes.alive(who)
    lifecycle.down(own)
    assert not processes.alive(who)


def test_a_client_that_is_killed_lets_a_writing_command_die_of_its_closed_pipe(own: Root) -> None:
    ssh = Ssh(own)
    file = own.ct129.home / "pid"
    command = f"echo $$ >{file}; exec yes"
    with subprocess.Popen([*ssh.words("ct129"), command], stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        client.stdout.read(2)
        who = processes.of(int(file.read_text()))
        client.send_signal(signal.SIGKILL)
    assert who is not None
    assert lifecycle.until(lambda: True if not processes.alive(who) else None, 60)


def test_a_server_that_was_taken_away_comes_back_at_the_same_place(own: Root) -> None:
    ssh = Ssh(own)
    for host in lifecycle.HOSTS:
        assert lifecycle.stop_server(own, host)
        assert ssh.run("there", "true").returncode == 255
        lifecycle.start_server(own, host)
        assert ssh.run("there", "true").returncode == 0


def test_rsync_on_ct129_pulls_out_of_the_container_whatever_the_names(own: Root) -> None:
    names = [b"a b", b"$HOME", b"`id`", b"q'q", b'd"q', "ü".encode(), b"new\nline", b"-lead", b"\xff\xfe"]
    source, here = own.ct200.top / "workspace/odd", own.workspace / "odd"
    source.mkdir()
    for name in names:
        (source / os.fsdecode(name)).write_bytes(name)
    rsync = (
        f"rsync -t --from0 --files-from=- --partial-dir=.part -e 'ssh -F {own.ct129.ssh_config} pve pct exec' "
        f"--rsync-path='-- rsync' 200:{source}/ {here}/"
    )
    done = Ssh(own).run("ct129", rsync, b"\0".join(names))
    assert (done.returncode, done.stderr) == (0, b"")
    assert {os.fsencode(p.name): p.read_bytes() for p in here.iterdir()} == {name: name for name in names}
