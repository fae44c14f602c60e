"""A hop resolves as the user's own OpenSSH would, Include and Match and all."""

from __future__ import annotations

import getpass
import shutil
from pathlib import Path
from typing import Any

import pytest

from hostkit.errors import ConfigError
from hostkit.inventory.models import Host
from hostkit.transport.route import Hop
from hostkit.transport.ssh.dial import end_proxy, start_proxy
from hostkit.transport.ssh.resolve import home, percent, resolve

pytestmark = pytest.mark.skipif(not shutil.which("ssh"), reason="no ssh client")


def hop(name: str, **keys: Any) -> Hop:
    return Hop(name, Host.model_validate(keys))


@pytest.mark.report("e11")
@pytest.mark.parametrize("before", ["", "Match all\n", "Host *\n"])
def test_an_alias_in_an_included_file_is_found(tmp_path: Path, before: str) -> None:
    (tmp_path / "config.d").mkdir()
    (tmp_path / "config.d" / "jump").write_text(
        "Host my-jump\n  HostName 10.9.8.7\n  Port 2200\n  User ops\n  IdentityFile /keys/jump\n"
        "  HostKeyAlias jump-key\n  ProxyJump first,ops@second:2022\n  IdentitiesOnly yes\n"
    )
    (tmp_path / "config").write_text(f"{before}Include {tmp_path}/config.d/*\n")
    end = resolve(hop("ct129", alias="my-jump", ssh_config=str(tmp_path / "config")))
    assert (end.address, end.port, end.user) == ("10.9.8.7", 2200, "ops")
    assert end.identities == (Path("/keys/jump"),)
    assert end.only_identities
    assert end.host_key_alias == "jump-key"
    assert end.jumps == ("first", "ops@second:2022")


def test_what_the_inventory_says_counts_more_than_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(
        "Host *\n  User ops\n  Port 2200\n  IdentityFile /keys/other\n  ProxyJump x\n"
    )
    end = resolve(
        hop(
            "pve",
            address="fe80::1%eth0",
            user="root",
            port=22,
            identity="/keys/mine",
            known_hosts="/k h",
            via="ct129",
            ssh_config=str(tmp_path / "config"),
        )
    )
    assert (end.address, end.port, end.user) == ("fe80::1%eth0", 22, "root")
    assert end.identities == (Path("/keys/mine"),)
    assert end.only_identities
    assert end.known_hosts == (Path("/k h"),)
    assert end.jumps == (), "via says through whom"


def test_without_a_word_about_it_the_defaults_are_openssh_s(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("")
    end = resolve(hop("a", address="10.0.0.1", ssh_config=str(tmp_path / "config")))
    assert (end.port, end.user) == (22, getpass.getuser())
    assert home("~/.ssh/id_ed25519") in end.identities
    assert not end.only_identities
    assert home("~/.ssh/known_hosts") in end.known_hosts
    assert end.proxy_command is None


def test_the_agent_is_the_one_that_ssh_would_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config"
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    monkeypatch.setenv("OTHER_AGENT", "/run/other")
    for said, agent in (
        ("", "/run/agent"),
        ("IdentityAgent /run/mine", "/run/mine"),
        ("IdentityAgent SSH_AUTH_SOCK", "/run/agent"),
        ("IdentityAgent $OTHER_AGENT", "/run/other"),
        ("IdentityAgent none", None),
    ):
        config.write_text(f"Host *\n  {said}\n")
        assert resolve(hop("a", address="b", ssh_config=str(config))).agent == agent, said
    monkeypatch.delenv("SSH_AUTH_SOCK")
    config.write_text("")
    assert resolve(hop("a", address="b", ssh_config=str(config))).agent is None


def test_a_configuration_that_ssh_does_not_understand_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("Nonsense yes\n")
    with pytest.raises(ConfigError, match="onsense"):
        resolve(hop("a", address="b", ssh_config=str(tmp_path / "config")))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("nc %h %p", "nc fe80::1%%p 22"),
        ("%%h", "%h"),
        ("%%%h", "%fe80::1%%p"),
        ("%x 100%", "%x 100%"),
        ("%%%%", "%%"),
    ],
)
def test_percent_tokens_are_replaced_in_one_pass(written: str, meant: str) -> None:
    assert percent(written, h="fe80::1%%p", p="22") == meant


def test_a_keys_path_is_expanded_as_by_openssh(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("Host *\n  IdentityFile /keys/%%h/%r@%h\n")
    end = resolve(hop("a", address="10.0.0.1", user="ops", ssh_config=str(tmp_path / "config")))
    assert end.identities == (Path("/keys/%h/ops@10.0.0.1"),)


def test_a_proxy_command_is_run_with_its_tokens_and_ended_even_if_it_does_not_heed(tmp_path: Path) -> None:
    command = "sh -c 'trap : TERM; echo %h %%h; while :; do sleep 1; done'"
    (tmp_path / "config").write_text(f"Host *\n  ProxyCommand {command}\n")
    end = resolve(hop("a", address="10.0.0.1", ssh_config=str(tmp_path / "config")))
    sock, process = start_proxy(end)
    with sock:
        sock.settimeout(20)
        assert sock.recv(100) == b"10.0.0.1 %h\n"
        end_proxy(process, patience=0.1)
        assert process.returncode == -9


def test_home_is_the_password_files_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    before = home("~/x")
    monkeypatch.setenv("HOME", "/nowhere")
    assert home("~/x") == before
    assert home("/a/~b") == Path("/a/~b")
