"""host-trust accepts a key by the fingerprint that was read elsewhere, and by nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from .servers import Fleet, Server


def hostkit(inventory: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, "-c", "from hostkit.cli import main; main()"]
    home = {"HOME": str(inventory.parent), "XDG_DATA_HOME": str(inventory.parent / "data")}
    return subprocess.run(
        [*start, *argv, "--inventory", str(inventory)],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            **home,
            "PYTHONPATH": f"{Path(__file__).parents[2]}:{os.environ.get('PYTHONPATH', '')}",
        },
        timeout=120,
    )


def fingerprint(server: Server, file: str = "host_key.pub") -> str:
    said = subprocess.run(
        ["ssh-keygen", "-lf", server.folder / file], capture_output=True, text=True, check=True
    )
    return said.stdout.split()[1]


@pytest.fixture
def inventory(fleet: Fleet, tmp_path: Path) -> Path:
    empty = tmp_path / "known_hosts"
    empty.write_text("")
    hosts = {
        "ct129": fleet.host("outer", known_hosts=str(empty)),
        "pve": fleet.host("inner", via="ct129", known_hosts=str(empty)),
        "there": fleet.host("inner", via="ct129", login="there", known_hosts=str(empty)),
        "ct200": {"pct": 200, "via": "pve"},
    }
    path = tmp_path / "fleet.yaml"
    path.write_text(yaml.safe_dump({"hostkit": 1, "archive": str(tmp_path / "archive"), "hosts": hosts}))
    return path


def own(inventory: Path) -> Path:
    return inventory.parent / "data" / "hostkit" / "known_hosts"


def test_the_right_fingerprint_is_trusted_hop_by_hop_and_written_privately(
    fleet: Fleet, inventory: Path
) -> None:
    right = {name: fingerprint(fleet.server(name)) for name in ("outer", "inner")}
    blocked = hostkit(inventory, "host-trust", "pve", "--fingerprint", right["inner"])
    assert blocked.returncode == 69, "the hop before it is not trusted yet"
    assert "ct129" in blocked.stderr
    done = hostkit(inventory, "host-trust", "ct129", "--fingerprint", right["outer"], "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["written"] is True
    assert own(inventory).stat().st_mode & 0o777 == 0o600
    assert own(inventory).parent.stat().st_mode & 0o777 == 0o700
    done = hostkit(inventory, "host-trust", "pve", "--fingerprint", right["inner"])
    assert done.returncode == 0, done.stderr
    again = hostkit(inventory, "host-trust", "pve", "--fingerprint", right["inner"], "--json")
    assert json.loads(again.stdout) | {"was_trusted": True, "written": False} == json.loads(again.stdout)
    assert len(own(inventory).read_text().splitlines()) == 2
    assert Path(json.loads(again.stdout)["file"]) == own(inventory)
    assert (inventory.parent / "known_hosts").read_text() == "", "the user's own file is not touched"


def test_another_fingerprint_is_refused_and_nothing_written(fleet: Fleet, inventory: Path) -> None:
    done = hostkit(inventory, "host-trust", "ct129", "--fingerprint", fingerprint(fleet.server("inner")))
    assert done.returncode == 77
    assert fingerprint(fleet.server("outer")) in done.stderr
    assert "nothing was trusted" in done.stderr
    assert not own(inventory).exists()


@pytest.mark.parametrize("said", ["yes", "MD5:00:11", "SHA256:short", ""])
def test_what_is_no_fingerprint_is_a_usage_error(inventory: Path, said: str) -> None:
    done = hostkit(inventory, "host-trust", "ct129", f"--fingerprint={said}")
    assert done.returncode == 64
    assert not own(inventory).exists()


def test_a_dry_run_writes_nothing(fleet: Fleet, inventory: Path) -> None:
    right = fingerprint(fleet.server("outer"))
    done = hostkit(inventory, "host-trust", "ct129", "--fingerprint", right, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "would be trusted" in done.stdout
    assert not own(inventory).exists()


@pytest.mark.parametrize("name", ["there", "ct200"])
def test_a_key_that_is_not_checked_from_here_cannot_be_trusted_here(
    fleet: Fleet, inventory: Path, name: str
) -> None:
    done = hostkit(inventory, "host-trust", name, "--fingerprint", fingerprint(fleet.server("inner")))
    assert done.returncode == 64
    assert "not verified by this machine" in done.stderr


def test_a_fingerprint_of_any_kind_of_key_will_do(fleet: Fleet, tmp_path: Path, inventory: Path) -> None:
    server = Server(tmp_path, "both")
    server.folder.mkdir()
    rsa = server.folder / "rsa_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", rsa], check=True)
    server.options = (f"HostKey {rsa}",)
    server.start()
    try:
        document = yaml.safe_load(inventory.read_text())
        document["hosts"]["ct129"]["port"] = server.port
        document["hosts"]["ct129"]["identity"] = str(tmp_path / "id")
        inventory.write_text(yaml.safe_dump(document))
        right = fingerprint(server, "rsa_key.pub")
        done = hostkit(inventory, "host-trust", "ct129", "--fingerprint", right, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["kind"] == "ssh-rsa"
    finally:
        server.stop()
