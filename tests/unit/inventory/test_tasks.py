"""`inventory` and `hosts` from the outside: exit codes, one document, and nobody contacted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

EXAMPLES = Path(__file__).parents[3] / "inventory"
CALL = "import sys; sys.argv[0] = 'hostkit'; from hostkit.cli import main; main()"


def hostkit(*argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CALL, *argv],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"HOSTKIT_INVENTORY": str(EXAMPLES / "fleet.yaml")} | environ,
    )


def document(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout)


def test_a_sound_file_is_said_to_be_sound() -> None:
    done = hostkit("inventory", "--check")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("fleet.yaml: sound (4 hosts, 1 run, 1 eval)\n")


def test_what_is_shown_is_an_inventory_itself_with_every_default(tmp_path: Path) -> None:
    shown = hostkit("inventory").stdout
    (tmp_path / "again.yaml").write_text(shown)
    again = hostkit("inventory", "--inventory", str(tmp_path / "again.yaml")).stdout
    assert yaml.safe_load(again) == yaml.safe_load(shown)
    assert yaml.safe_load(shown)["runs"]["drafter"]["timeouts"] == {
        "startup": "30m",
        "stall": "15m",
        "save": "10m",
    }
    assert yaml.safe_load(shown)["evals"]["drafter"]["limits"]["memory"] == "72GiB"


def test_no_login_is_shown_of_what_is_entered_without_ssh() -> None:
    shown = yaml.safe_load(hostkit("inventory").stdout)["hosts"]
    assert {name: host.get("login") for name, host in shown.items()} == {
        "workspace": None,
        "ct129": "forward",
        "pve": "there",
        "ct200": None,
    }


def test_the_document_has_the_file_and_its_values(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text((EXAMPLES / "fleet.yaml").read_text() + "\nnotify: []\n")
    found = document(hostkit("inventory", "--json", "--inventory", str(file)))
    assert (found["schema"], found["file"], found["notes"]) == ("hostkit.inventory/1", str(file), [])
    assert found["inventory"]["hosts"]["ct200"]["pct"] == 200
    assert found["inventory"]["notify"] == []


def test_without_an_archive_the_file_is_sound_and_the_default_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text("hostkit: 1\nhosts:\n  trainer: {address: h}\n")
    found = document(hostkit("inventory", "--json", "--inventory", str(file)))
    assert found["inventory"]["archive"].endswith("/hostkit/archive")


@pytest.mark.report("j7")
def test_a_faulty_file_ends_with_78_and_every_fault(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text("hostkit: 1\narchive: /data/archive\nprotect_trainig: true\nhosts:\n  no: {adress: h}\n")
    for command in ("inventory", "hosts"):
        done = hostkit(command, "--inventory", str(file))
        assert (done.returncode, done.stdout) == (78, "")
        told = done.stderr.splitlines()
        assert told[0] == f"hostkit: {file}: 3 faults in the inventory, no host was contacted"
        assert [line.split(": ")[0].strip() for line in told[1:]] == [f"{file}:{line}" for line in (3, 5, 5)]
    error = document(hostkit("inventory", "--check", "--json", "--inventory", str(file)))
    assert (error["schema"], error["exit"], len(error["faults"])) == ("hostkit.error/1", 78, 3)


@pytest.mark.report("j9")
def test_an_unset_variable_of_the_real_environment_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text("hostkit: 1\narchive: ${HOSTKIT_TEST_HOME}/runs\nhosts: {a: {address: h}}\n")
    for environ in ({}, {"HOSTKIT_TEST_HOME": ""}, {"HOSTKIT_TEST_HOME": "~"}):
        assert hostkit("inventory", "--inventory", str(file), **environ).returncode == 78
    sound = hostkit("inventory", "--json", "--inventory", str(file), HOSTKIT_TEST_HOME="/data")
    assert document(sound)["inventory"]["archive"] == "/data/runs"


def test_the_schema_needs_no_inventory() -> None:
    done = hostkit("inventory", "--schema", HOSTKIT_INVENTORY="/nonexistent")
    assert done.stdout == (EXAMPLES / "schema.json").read_text()


def test_hosts_says_each_way_in_words() -> None:
    ways = {host["name"]: host["words"] for host in document(hostkit("hosts", "--json"))["hosts"]}
    assert ways == {
        "workspace": "this machine",
        "ct129": "ssh root@10.1.230.172",
        "pve": "ssh root@10.1.230.172, then ssh root@10.1.2.6 on ct129",
        "ct200": "ssh root@10.1.230.172, then ssh root@10.1.2.6 on ct129, then pct exec 200 on pve",
    }


def test_hosts_from_another_machine_of_the_fleet_has_shorter_ways() -> None:
    ways = {
        host["name"]: host["words"]
        for host in document(hostkit("hosts", "--json", "--here", "ct129"))["hosts"]
    }
    assert ways["ct200"] == "this machine, then ssh root@10.1.2.6, then pct exec 200 on pve"
    assert ways["workspace"].startswith("not from here: ")
    assert hostkit("hosts", "--here", "ct12").returncode == 64


def test_hosts_shows_kind_runs_and_evals_to_a_person() -> None:
    lines = hostkit("hosts").stdout.splitlines()
    assert lines[0].split() == ["host", "kind", "how", "it", "is", "reached", "what", "is", "there"]
    assert any(line.startswith("ct200") and " pct " in line and "run drafter" in line for line in lines)
    assert any(line.startswith("ct129") and "eval drafter" in line for line in lines)


def test_hosts_shows_what_openssh_makes_of_an_alias(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host box\n  HostName 10.9.8.7\n  User alice\n  Port 2222\n  ProxyJump door\n")
    file = tmp_path / "fleet.yaml"
    file.write_text(
        f"hostkit: 1\narchive: /a/b\nhosts:\n  gpu: {{alias: box, ssh_config: {config}}}\n"
        f"  tunnel: {{address: 10.0.0.9, via: gpu, port: 2022, sudo: ops}}\n"
    )
    ways = {
        host["name"]: host["words"]
        for host in document(hostkit("hosts", "--json", "--inventory", str(file)))["hosts"]
    }
    gpu = "ssh box (your ssh config: alice@10.9.8.7 port 2222 through door)"
    assert ways == {
        "gpu": gpu,
        "tunnel": f"{gpu}, then ssh 10.0.0.9 port 2022 by a tunnel through gpu, as ops by sudo",
    }


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys, hostkit.inventory; heavy = {'pydantic', 'yaml', 'rich', 'fabric', 'paramiko'}; "
        "print(sorted(heavy & set(sys.modules))); import hostkit.tasks.inventory; "
        "print(sorted((heavy - {'yaml'}) & set(sys.modules)))"  # Invoke itself brings yaml
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n[]\n"
