"""Trusting a host key: only one whose fingerprint was read elsewhere, and only for hostkit itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hostkit.errors import RefusedError, UsageError
from hostkit.transport.ssh import known_hosts

if TYPE_CHECKING:
    from hostkit.transport.connections import Connections

_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")


@dataclass(frozen=True, slots=True)
class Accepted:
    """A key that is trusted now (or would be)."""

    fingerprint: str
    kind: str
    names: tuple[str, ...]
    file: Path
    before: bool  # it was trusted already
    written: bool


def accept(connections: Connections, name: str, fingerprint: str, *, dry_run: bool = False) -> Accepted:
    """Trust the key that host `name` offers, if its fingerprint is `fingerprint`.

    Raises RefusedError when it offers another one, UsageError when this machine verifies no key of this host.
    """
    wanted = fingerprint.strip().rstrip("=")
    if not _FINGERPRINT.fullmatch(wanted):
        raise UsageError(
            f"{fingerprint!r} is not a SHA-256 fingerprint",
            hint="on the machine itself: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub",
        )
    route = connections.route(name)
    chain = route.connected()
    if not chain or chain[-1].name != name:
        outer = route.hops[-2].name if len(route.hops) > 1 else "this machine"
        there = route.hops[-1].kind == "ssh"
        hint = (
            f"ssh on {outer} verifies it (`login: there`): add it to known_hosts there"
            if there
            else "it has no ssh server of its own"
        )
        raise UsageError(f"{name}'s host key is not verified by this machine", hint=hint)
    line = connections.ssh_line(chain)
    names = line.host_key_names()
    mismatched: list[str] = []
    for offered in line.host_keys():
        if known_hosts.fingerprint(offered.blob) == wanted:
            break
        mismatched.append(f"{offered.kind} {known_hosts.fingerprint(offered.blob)}")
    else:
        raise RefusedError(
            f"its host key is {' or '.join(mismatched) or 'of no supported type'}, not {wanted}; nothing was trusted",
            rule="host-key-mismatch",
            where=name,
            hint="is the fingerprint of another machine? If not, the connection may be intercepted",
        )
    try:
        known = known_hosts.matching(known_hosts.read([known_hosts.own_file()]), names)
    except OSError as error:
        raise known_hosts.unreadable(error, name, line.hops_before) from error
    before = any(key.blob == offered.blob and not key.revoked for key in known)
    if not before and not dry_run:
        known_hosts.trust(names[0], offered.kind, offered.blob)
    return Accepted(
        wanted, offered.kind, tuple(names), known_hosts.own_file(), before, not before and not dry_run
    )
