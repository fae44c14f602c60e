"""Host keys that are trusted: known_hosts files read as OpenSSH reads them, and hostkit's own file."""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hostkit.directories import data_directory
from hostkit.errors import HostKeyError


@dataclass(frozen=True, slots=True)
class KnownKey:
    """One line of a known_hosts file."""

    patterns: str
    kind: str  # ssh-ed25519, …
    blob: bytes
    file: Path
    line: int
    revoked: bool = False


def own_file() -> Path:
    """Return hostkit's own known_hosts, which only `host-trust` writes."""
    return data_directory(create=False) / "known_hosts"


def fingerprint(blob: bytes) -> str:
    """Return a key's fingerprint as `ssh-keygen -l` prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def lookup_names(address: str, port: int, *, alias: str | None = None, inner: str | None = None) -> list[str]:
    """Return the names under which OpenSSH would look; behind a hop (`inner`) also the inventory name."""
    names = [alias] if alias else [address if port == 22 else f"[{address}]:{port}"]
    if inner is not None and alias is None:
        names.append(inner if port == 22 else f"[{inner}]:{port}")
        names.append(inner)
    return list(dict.fromkeys(names))


def read(files: Iterable[Path]) -> list[KnownKey]:
    """Read known_hosts files; a file that is missing holds nothing, a line that is no entry is skipped.

    Raises the OSError of a file that cannot be read: it may hold the key, or mark it as revoked.
    """
    keys: list[KnownKey] = []
    for file in files:
        try:
            lines = file.read_bytes().decode("utf-8", "replace").splitlines()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            continue
        for number, line in enumerate(lines, 1):
            if key := _parse(line, file, number):
                keys.append(key)
    return keys


def unreadable(error: OSError, hop: str, hops_reached: tuple[str, ...]) -> HostKeyError:
    """Return the error for a known_hosts file that cannot be read."""
    return HostKeyError(
        f"its host key cannot be verified: {error.filename} cannot be read ({error.strerror})",
        hop=hop,
        hops_reached=hops_reached,
        hint="fix the file, or name another with `known_hosts:` in the inventory",
    )


def _parse(line: str, file: Path, number: int) -> KnownKey | None:
    fields = line.split()
    revoked = False
    if fields and fields[0] == "@revoked":
        revoked, fields = True, fields[1:]
    if len(fields) < 3 or fields[0].startswith(("#", "@")):  # paramiko knows no host certificates
        return None
    try:
        blob = base64.b64decode(fields[2], validate=True)
    except ValueError:
        return None
    return KnownKey(fields[0], fields[1], blob, file, number, revoked)


def matching(keys: Iterable[KnownKey], names: Iterable[str]) -> list[KnownKey]:
    """Return the entries that hold for any of the names."""
    wanted = [name.lower() for name in names]
    return [key for key in keys if any(_matches(key.patterns, name) for name in wanted)]


def _matches(patterns: str, name: str) -> bool:
    if patterns.startswith("|1|"):
        try:
            _, _, salt, digest = patterns.split("|")
            expected = hmac.new(base64.b64decode(salt), name.encode(), hashlib.sha1).digest()
            return hmac.compare_digest(expected, base64.b64decode(digest))
        except ValueError:
            return False
    matched = False
    for pattern in patterns.lower().split(","):
        # only * and ? are wild in known_hosts; brackets are literal
        if fnmatch.fnmatchcase(name, pattern.removeprefix("!").replace("[", "[[]")):
            if pattern.startswith("!"):
                return False
            matched = True
    return matched


def trust(name: str, kind: str, blob: bytes, file: Path | None = None) -> Path:
    """Add an entry to hostkit's own file (0600), in place of older ones under exactly that name and kind."""
    file = file or data_directory() / own_file().name
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lines = file.read_text().splitlines() if file.exists() else []
    kept = [line for line in lines if line.split()[:2] != [name, kind]]
    kept.append(f"{name} {kind} {base64.b64encode(blob).decode()}")
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write("\n".join(kept) + "\n")
    temporary.replace(file)
    return file
