"""Trusting a host key: only one whose fingerprint was read elsewhere, and only for hostkit itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hostkit.errors import HostKeyError, UsageError
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

    Raises HostKeyError when it offers another one, UsageError when no key of this host is checked from here.
    """
    asked = fingerprint.strip().rstrip("=")
    if not _FINGERPRINT.fullmatch(asked):
        raise UsageError(
            f"{fingerprint!r} is no SHA-256 fingerprint",
            hint="on the machine itself: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub",
        )
    route = connections.route(name)
    chain = route.connected()
    if not chain or chain[-1].name != name:
        outer = route.hops[-2].name if len(route.hops) > 1 else "this machine"
        there = route.hops[-1].kind == "ssh"
        hint = (
            f"ssh on {outer} checks it (`login: there`): verify it there"
            if there
            else "it has no ssh of its own"
        )
        raise UsageError(f"{name}'s host key is not checked from this machine", hint=hint)
    line = connections.line(chain)
    names = line.host_key_names()
    seen: list[str] = []
    for offered in line.host_keys():
        blob, kind = offered.asbytes(), offered.get_name()
        if known_hosts.fingerprint(blob) == asked:
            break
        seen.append(f"{kind} {known_hosts.fingerprint(blob)}")
    else:
        raise HostKeyError(
            f"it offers {', '.join(seen) or 'no key that is understood'}, not {asked}; nothing was trusted",
            hop=name,
            hops_reached=line.hops_reached,
            hint="somebody may stand between you and it, or the fingerprint is of another machine",
        )
    known = known_hosts.matching(known_hosts.read([known_hosts.own_file()]), names)
    before = any(key.blob == blob and not key.revoked for key in known)
    if not before and not dry_run:
        known_hosts.trust(names[0], kind, blob)
    return Accepted(asked, kind, tuple(names), known_hosts.own_file(), before, not before and not dry_run)
