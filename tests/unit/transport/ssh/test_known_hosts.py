"""known_hosts files are read as OpenSSH reads them; `ssh-keygen -F` is the second witness."""

from __future__ import annotations

import base64
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostkit.transport.ssh import known_hosts

KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIJY1c6xF1rZ0l5l2n8TPhTr5f3m9uGmYp0m8qQ2o0ZyC"
BLOB = base64.b64decode(KEY)


def found(tmp_path: Path, text: str, *names: str) -> list[int]:
    file = tmp_path / "known_hosts"
    file.write_text(text)
    return [key.line for key in known_hosts.matching(known_hosts.read([file]), names)]


@pytest.mark.parametrize(
    ("patterns", "name", "matches"),
    [
        ("example.org", "example.org", True),
        ("example.org", "EXAMPLE.org", True),
        ("Example.ORG", "example.org", True),
        ("example.org", "example.orgs", False),
        ("a,b,10.0.0.1", "10.0.0.1", True),
        ("[10.0.0.1]:2222", "[10.0.0.1]:2222", True),
        ("10.0.0.1", "[10.0.0.1]:2222", False),
        ("*.example.org", "a.example.org", True),
        ("*.example.org", "example.org", False),
        ("10.0.0.?", "10.0.0.7", True),
        ("10.0.0.?", "10.0.0.77", False),
        ("*,!bad.org", "good.org", True),
        ("*,!bad.org", "bad.org", False),
        ("!bad.org,*", "bad.org", False),
        ("[fe80::1%eth0]:2222", "[fe80::1%eth0]:2222", True),
        ("[ab].org", "a.org", False),
    ],
)
def test_a_pattern_matches_as_it_does_for_openssh(
    tmp_path: Path, patterns: str, name: str, matches: bool
) -> None:
    text = f"{patterns} ssh-ed25519 {KEY}\n"
    assert bool(found(tmp_path, text, name)) is matches
    if shutil.which("ssh-keygen"):
        done = subprocess.run(
            ["ssh-keygen", "-F", name, "-f", tmp_path / "known_hosts"], capture_output=True, text=True
        )
        assert ("ssh-ed25519" in done.stdout) is matches


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="no ssh-keygen")
@pytest.mark.parametrize("name", ["example.org", "[10.0.0.1]:2222", "fe80::1"])
def test_a_hashed_name_is_found(tmp_path: Path, name: str) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"{name} ssh-ed25519 {KEY}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", file], check=True, capture_output=True)
    assert name not in file.read_text()
    keys = known_hosts.read([file])
    assert [key.blob for key in known_hosts.matching(keys, [name])] == [BLOB]
    assert known_hosts.matching(keys, ["other"]) == []


def test_comments_garbage_and_certificate_authorities_are_skipped_and_revoked_keys_kept(
    tmp_path: Path,
) -> None:
    text = (
        f"# a ssh-ed25519 {KEY}\n\n   \nnonsense\na ssh-ed25519 !!!\n@cert-authority a ssh-ed25519 {KEY}\n"
        f"a ssh-ed25519 {KEY} a comment\n@revoked a ssh-ed25519 {KEY}\n|1|broken a ssh-ed25519\n"
    )
    assert found(tmp_path, text, "a") == [7, 8]
    assert [key.revoked for key in known_hosts.read([tmp_path / "known_hosts"])][-2:] == [False, True]


def test_a_file_that_is_not_there_trusts_nobody(tmp_path: Path) -> None:
    assert known_hosts.read([tmp_path / "none", tmp_path, tmp_path / "none" / "below"]) == []


@given(st.binary(max_size=200))
def test_any_bytes_can_be_read(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "any_known_hosts"
    file.write_bytes(data)
    assert all(key.blob for key in known_hosts.matching(known_hosts.read([file]), ["a"]) if key.blob)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"address": "a", "port": 22}, ["a"]),
        ({"address": "a", "port": 2222}, ["[a]:2222"]),
        ({"address": "::1", "port": 2222}, ["[::1]:2222"]),
        ({"address": "a", "port": 22, "inner": "pve"}, ["a", "pve"]),
        ({"address": "a", "port": 2222, "inner": "pve"}, ["[a]:2222", "[pve]:2222", "pve"]),
        ({"address": "a", "port": 2222, "alias": "x", "inner": "pve"}, ["x"]),
    ],
)
def test_a_key_is_looked_up_under_the_names_that_openssh_uses(
    arguments: dict[str, object], names: list[str]
) -> None:
    assert known_hosts.lookup_names(**arguments) == names  # type: ignore[arg-type]


def test_trusting_writes_one_private_line_for_each_name_and_kind(tmp_path: Path) -> None:
    file = tmp_path / "new" / "known_hosts"
    known_hosts.trust("a", "ssh-ed25519", b"one", file)
    known_hosts.trust("b", "ssh-ed25519", b"two", file)
    known_hosts.trust("a", "ssh-rsa", b"three", file)
    known_hosts.trust("a", "ssh-ed25519", b"four", file)
    keys = known_hosts.read([file])
    assert {(key.patterns, key.kind, key.blob) for key in keys} == {
        ("b", "ssh-ed25519", b"two"),
        ("a", "ssh-rsa", b"three"),
        ("a", "ssh-ed25519", b"four"),
    }
    assert file.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in file.parent.iterdir()] == ["known_hosts"]


def test_the_own_file_is_looked_for_without_making_a_folder_and_written_in_a_private_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert known_hosts.read([known_hosts.own_file()]) == []
    assert not known_hosts.own_file().parent.exists()
    known_hosts.own_file().parent.mkdir(mode=0o755)
    assert known_hosts.trust("a", "ssh-ed25519", b"one") == tmp_path / "hostkit" / "known_hosts"
    assert (tmp_path / "hostkit").stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="no ssh-keygen")
def test_a_fingerprint_is_spelt_as_ssh_keygen_spells_it(tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    blob = base64.b64decode(key.with_suffix(".pub").read_text().split()[1])
    said = subprocess.run(["ssh-keygen", "-lf", key], capture_output=True, text=True, check=True).stdout
    assert known_hosts.fingerprint(blob) == said.split()[1]
