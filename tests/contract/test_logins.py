"""Whose key is whose: a server proves itself to us and we to it, or it is said what is wrong with which key."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostkit.errors import (
    AuthError,
    HostKeyError,
)

from .reaching import PATIENT, SOON, client, reach, until
from .servers import Fleet, keygen

# host keys


def test_an_unknown_host_key_is_refused_with_its_fingerprint_and_a_way_to_verify(
    fleet: Fleet, tmp_path: Path
) -> None:
    server = fleet.server("outer")
    empty = tmp_path / "known_hosts"
    empty.write_text("")
    with (
        reach("ct129", ct129=fleet.host(server, known_hosts=str(empty))) as transport,
        pytest.raises(HostKeyError) as caught,
    ):
        transport.run(["true"])
    assert caught.value.hop == "ct129"
    said = str(caught.value)
    printed = subprocess.run(
        ["ssh-keygen", "-lf", server.folder / "host_key.pub"], capture_output=True, text=True
    )
    assert printed.stdout.split()[1] in said
    assert "host-trust ct129 --fingerprint" in said
    assert "console" in said
    for word in ("StrictHostKeyChecking", "ssh-keygen -R", "accept-new", "/dev/null"):
        assert word not in said


def test_a_changed_host_key_shows_both_fingerprints_and_since_when(fleet: Fleet, tmp_path: Path) -> None:
    server = fleet.server("outer")
    other = keygen(tmp_path / "other")
    blob = other.with_suffix(".pub").read_text().split()[:2]
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{server.port} {' '.join(blob)}\n")
    os.utime(known, (1_700_000_000, 1_700_000_000))
    with (
        reach("ct129", ct129=fleet.host(server, known_hosts=str(known))) as transport,
        pytest.raises(HostKeyError) as caught,
    ):
        transport.run(["true"])
    for key in (server.folder / "host_key.pub", other.with_suffix(".pub")):
        printed = subprocess.run(["ssh-keygen", "-lf", key], capture_output=True, text=True)
        assert printed.stdout.split()[1] in str(caught.value)
    assert "CHANGED" in str(caught.value)
    assert "2023-11-14" in str(caught.value)


def test_a_revoked_host_key_is_refused_even_where_it_is_also_trusted(fleet: Fleet, tmp_path: Path) -> None:
    server = fleet.server("outer")
    known = tmp_path / "known_hosts"
    line = server.known_hosts_line()
    known.write_text(line + "@revoked " + line)
    with (
        reach("ct129", ct129=fleet.host(server, known_hosts=str(known))) as transport,
        pytest.raises(HostKeyError, match="revoked"),
    ):
        transport.run(["true"])


@pytest.mark.parametrize("login", ["forward", "there"])
def test_an_inner_hops_host_key_is_verified_too(fleet: Fleet, tmp_path: Path, login: str) -> None:
    empty = tmp_path / "known_hosts"
    empty.write_text("")
    inner = fleet.host("inner", via="outer", login=login, known_hosts=str(empty))
    with (
        reach("pve", outer=fleet.host("outer"), pve=inner) as transport,
        pytest.raises(HostKeyError) as caught,
    ):
        transport.run(["true"])
    assert caught.value.hop == "pve"
    assert caught.value.hops_reached == ("outer",)


def test_behind_a_hop_the_inventory_name_is_looked_up_as_well(fleet: Fleet, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(fleet.server("inner").known_hosts_line("pve"))
    inner = fleet.host("inner", via="outer", known_hosts=str(known))
    with reach("pve", outer=fleet.host("outer"), pve=inner) as transport:
        assert transport.run(["true"]).ok
    with (
        reach("pve", pve=fleet.host("inner", known_hosts=str(known))) as transport,
        pytest.raises(HostKeyError),
    ):
        transport.run(["true"])


def test_a_hashed_entry_and_an_alias_are_understood(fleet: Fleet, tmp_path: Path) -> None:
    server = fleet.server("outer")
    known = tmp_path / "known_hosts"
    known.write_text(server.known_hosts_line("the-alias", f"[127.0.0.1]:{server.port}"))
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", known], check=True, capture_output=True)
    with reach("a", a=fleet.host(server, known_hosts=str(known))) as transport:
        assert transport.run(["true"]).ok
    config = tmp_path / "config"
    config.write_text("Host a\n  HostKeyAlias the-alias\n")
    with reach("a", a=fleet.host(server, known_hosts=str(known), ssh_config=str(config))) as transport:
        assert transport.run(["true"]).ok


# logins


@pytest.mark.report("e17")
def test_a_wrong_user_is_permission_denied_not_a_locked_key(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with (
        reach("a", a=fleet.host("outer", user="nobody-of-that-name")) as transport,
        pytest.raises(AuthError) as caught,
    ):
        transport.run(["true"])
    assert "permission denied for user nobody-of-that-name" in str(caught.value)
    assert "passphrase" not in str(caught.value)
    assert caught.value.hop == "a"


@pytest.mark.parametrize("kind", ["a loop of links", "no permission"])
def test_a_known_hosts_that_cannot_be_read_is_named_and_no_key_trusted(
    fleet: Fleet, tmp_path: Path, kind: str
) -> None:
    known = tmp_path / "known_hosts"
    if kind == "no permission":
        if os.geteuid() == 0:
            pytest.skip("root may read any file")
        known.write_text(fleet.server("outer").known_hosts_line())
        known.chmod(0)
    else:
        known.symlink_to(tmp_path / "other")
        (tmp_path / "other").symlink_to(known)
    host = fleet.host("outer", known_hosts=str(known))
    with reach("ct129", ct129=host) as transport, pytest.raises(HostKeyError) as caught:
        transport.run(["true"])
    assert str(known) in str(caught.value)
    assert caught.value.hop == "ct129"


@pytest.mark.report("e17", "h1", "h9")
@pytest.mark.parametrize("agent", [None, "/nonexistent/agent"])
def test_a_locked_key_without_an_agent_says_so_at_once(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: str | None
) -> None:
    if agent is None:
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    else:
        monkeypatch.setenv("SSH_AUTH_SOCK", agent)
    key = tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", key], check=True)
    started = time.monotonic()
    with (
        reach("a", a=fleet.host("outer", identity=str(key), **PATIENT)) as transport,
        pytest.raises(AuthError) as caught,
    ):
        transport.run(["true"])
    assert f"{key} needs a passphrase, and no agent" in str(caught.value)
    assert time.monotonic() - started < SOON


@pytest.mark.report("h1")
def test_a_dead_agent_is_no_obstacle_to_a_key_file(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/nonexistent/agent")
    with reach("a", a=fleet.host("outer")) as transport:
        assert transport.run(["true"]).ok


@pytest.mark.report("e17")
def test_a_locked_key_of_the_old_format_is_a_locked_key(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    key = tmp_path / "old"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "secret", "-f", key], check=True
    )
    with (
        reach("a", a=fleet.host("outer", identity=str(key))) as transport,
        pytest.raises(AuthError, match="passphrase"),
    ):
        transport.run(["true"])
    key.write_text("this is no key\n")
    with (
        reach("a", a=fleet.host("outer", identity=str(key))) as transport,
        pytest.raises(AuthError, match="not a private key"),
    ):
        transport.run(["true"])


@pytest.mark.report("e17")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ssh-ed25519 AAAAC3Nza me@laptop\n", "key.pub is a public key; name the private one, {folder}/key"),
        ("ssh-ed25519-cert-v01@openssh.com AAAAIHNz me\n", "is a public key"),
        ("PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\n", "is a PuTTY key"),
        ("", "is empty"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNza", "is not a private key, or is damaged"),
    ],
    ids=["public", "certificate", "PuTTY", "empty", "cut"],
)
def test_a_file_that_is_no_private_key_is_called_by_its_name(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    key = tmp_path / "key.pub"
    key.write_text(text)
    with (
        reach("a", a=fleet.host("outer", identity=str(key))) as transport,
        pytest.raises(AuthError) as caught,
    ):
        transport.run(["true"])
    assert said.format(folder=tmp_path) in str(caught.value)
    assert "no such file" not in str(caught.value)


@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ed25519"])
def test_a_key_as_openssl_writes_it_logs_in_as_by_openssh(
    fleet: Fleet, own: Any, tmp_path: Path, kind: str
) -> None:
    from cryptography.hazmat.primitives import serialization

    keygen(tmp_path / "id", "-t", kind)
    loaded = serialization.load_ssh_private_key((tmp_path / "id").read_bytes(), password=None)
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    (tmp_path / "pkcs8").write_bytes(loaded.private_bytes(serialization.Encoding.PEM, form, plain))
    server = own("server")
    with reach("a", a=client(fleet, server, identity=str(tmp_path / "pkcs8"))) as transport:
        assert transport.run(["true"]).ok


def test_a_key_that_is_not_there_is_named(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    missing = tmp_path / "no-key"
    with (
        reach("a", a=fleet.host("outer", identity=str(missing))) as transport,
        pytest.raises(AuthError) as caught,
    ):
        transport.run(["true"])
    assert str(missing) in str(caught.value)


def listens(path: Path) -> bool:
    """Whether somebody answers at a Unix socket: its file is there a moment before."""
    with socket.socket(socket.AF_UNIX) as caller:
        return caller.connect_ex(str(path)) == 0


@pytest.fixture
def full_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An agent with six keys that no server knows."""
    path = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
    until(lambda: listens(path), "an agent that listens")
    for number in range(6):
        subprocess.run(["ssh-add", "-q", keygen(tmp_path / f"wrong{number}")], check=True)
    yield path
    agent.terminate()
    agent.wait(10)


@pytest.mark.report("e1")
def test_a_full_agent_does_not_use_up_the_servers_patience(fleet: Fleet, own: Any, full_agent: Path) -> None:
    server = own("strict", "MaxAuthTries 3")
    with reach("a", a=client(fleet, server)) as transport:
        assert transport.run(["true"]).ok


@pytest.mark.report("e1")
def test_too_many_keys_is_said_in_these_words(
    fleet: Fleet, own: Any, full_agent: Path, tmp_path: Path
) -> None:
    server = own("strict", "MaxAuthTries 3")
    host = client(fleet, server)
    del host["identity"]
    config = tmp_path / "config"
    config.write_text("Host *\n  IdentityFile /nonexistent/key\n")
    with (
        reach("a", a={**host, "ssh_config": str(config)}) as transport,
        pytest.raises(AuthError, match="too many keys"),
    ):
        transport.run(["true"])


@pytest.mark.report("e17")
def test_a_locked_key_that_the_agent_holds_is_used(
    fleet: Fleet, own: Any, full_agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = own("strict", "MaxAuthTries 3")
    key = tmp_path / "mine"
    key.write_bytes((tmp_path / "id").read_bytes())
    key.chmod(0o600)
    subprocess.run(["ssh-add", "-q", key], check=True)
    (tmp_path / "mine.pub").write_bytes((tmp_path / "id.pub").read_bytes())
    subprocess.run(
        ["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", key], check=True, capture_output=True
    )
    with reach("a", a=client(fleet, server, identity=str(key))) as transport:
        assert transport.run(["true"]).ok


@pytest.mark.report("e7")
def test_an_account_without_a_shell_is_a_refused_login(fleet: Fleet, own: Any) -> None:
    server = own("nologin", "ForceCommand /usr/sbin/nologin")
    with (
        reach("a", a=client(fleet, server)) as transport,
        pytest.raises(AuthError, match="takes no commands"),
    ):
        transport.run(["true"])
