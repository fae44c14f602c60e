"""A private key from its file, in every form that OpenSSH reads; and what a file is that holds none."""

from __future__ import annotations

import io
import re
from pathlib import Path

import paramiko

_PUBLIC = re.compile(rb"\s*(?:ssh-|ecdsa-|sk-|---- BEGIN SSH2 PUBLIC KEY|-----BEGIN (?:RSA )?PUBLIC KEY)")
_HEAD = 4096


def load(path: Path) -> paramiko.PKey:
    """Return the key. Raises what `paramiko.PKey.from_path` raises; it knows no PKCS #8, which is read here."""
    try:
        return paramiko.PKey.from_path(path)
    except paramiko.PasswordRequiredException:
        raise
    except paramiko.SSHException:
        key = _pkcs8(path.read_bytes())
        if key is None:
            raise
        return key


def what_it_is(path: Path) -> str:
    """Describe a file that is not a usable private key, and what to name in its place."""
    if path.is_dir():
        return "is a folder"
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if head.startswith(b"PuTTY-User-Key-File"):
        return "is a PuTTY key; `puttygen KEY -O private-openssh -o NEW` makes one for ssh of it"
    if _PUBLIC.match(head):
        private = path.with_suffix("") if path.suffix == ".pub" else None
        return f"is a public key; name the private one{f', {private}' if private else ''}"
    if not head.strip():
        return "is empty"
    return "is not a private key, or is damaged"


def _pkcs8(data: bytes) -> paramiko.PKey | None:
    """Read "BEGIN PRIVATE KEY", as openssl and clouds write it."""
    from cryptography.hazmat.primitives import serialization

    if b"-----BEGIN PRIVATE KEY-----" not in data:
        return None
    loaded = serialization.load_pem_private_key(data, password=None)
    text = loaded.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    for kind in (paramiko.RSAKey, paramiko.ECDSAKey, paramiko.Ed25519Key):
        try:
            return kind.from_private_key(io.StringIO(text.decode("ascii")))
        except paramiko.SSHException:
            continue
    return None
