"""Host key verification on every hop: an unknown or changed key is refused, with fingerprints and how to check."""

from __future__ import annotations

from datetime import UTC, datetime

import paramiko

from hostkit.errors import HostKeyError
from hostkit.transport.ssh import known_hosts
from hostkit.transport.ssh.known_hosts import KnownKey
from hostkit.transport.ssh.resolve import Endpoint

RSA = ("rsa-sha2-512", "rsa-sha2-256")


class HostKeyPolicy(paramiko.MissingHostKeyPolicy):
    """Accepts a host key that a trusted file holds for this hop, and no other. Nothing is ever added."""

    def __init__(self, endpoint: Endpoint, hops_reached: tuple[str, ...]) -> None:
        self._end = endpoint
        self._hops_reached = hops_reached
        self.names = names_of(endpoint, inner=bool(hops_reached))
        self._files = [*endpoint.known_hosts, known_hosts.own_file()]
        try:
            self.known = known_hosts.matching(known_hosts.read(self._files), self.names)
        except OSError as error:
            raise known_hosts.unreadable(error, endpoint.name, hops_reached) from error

    def prefer(self, transport: paramiko.Transport) -> None:
        """Ask the server first for the kinds of key that are trusted; it may have others as well."""
        options = transport.get_security_options()
        trusted = [kind for key in self.known for kind in (RSA if key.kind == "ssh-rsa" else (key.kind,))]
        first = [kind for kind in options.key_types if kind in trusted]
        options.key_types = [*first, *(kind for kind in options.key_types if kind not in first)]

    def missing_host_key(
        self,
        client: paramiko.SSHClient,  # noqa: ARG002
        hostname: str,  # noqa: ARG002
        key: paramiko.PKey,
    ) -> None:
        """Return when the key is trusted; raise HostKeyError otherwise. (The client itself holds no keys.)"""
        blob = key.asbytes()
        same = [known for known in self.known if known.blob == blob]
        if any(known.revoked for known in same):
            raise self._refusal(
                key, f"is marked @revoked in {same[0].file}", "do not connect; ask who revoked it"
            )
        if same:
            return
        check = (
            "read the fingerprint on the machine itself (console, Proxmox shell): "
            f"ssh-keygen -lf /etc/ssh/ssh_host_{_file(key)}_key.pub; if it is the same: "
            f"hostkit host-trust {self._end.name} --fingerprint SHA256:…"
        )
        old = [known for known in self.known if not known.revoked]
        if old:
            raise self._refusal(key, f"has CHANGED; known: {', '.join(map(_trusted, old))}", check)
        files = ", ".join(str(file) for file in self._files if file.exists()) or "no file (none exists)"
        raise self._refusal(key, f"is unknown; looked up {' and '.join(self.names)} in {files}", check)

    def _refusal(self, key: paramiko.PKey, what: str, hint: str) -> HostKeyError:
        print_of = f"{key.get_name()} {known_hosts.fingerprint(key.asbytes())}"
        return HostKeyError(
            f"the host key of {self._end.address}:{self._end.port} ({print_of}) {what}",
            hop=self._end.name,
            hops_reached=self._hops_reached,
            hint=hint,
        )


def names_of(endpoint: Endpoint, *, inner: bool) -> list[str]:
    """Return the names under which a hop's key is looked up; the first is the one that host-trust writes."""
    return known_hosts.lookup_names(
        endpoint.address, endpoint.port, alias=endpoint.host_key_alias, inner=endpoint.name if inner else None
    )


def _trusted(key: KnownKey) -> str:
    changed = datetime.fromtimestamp(key.file.stat().st_mtime, UTC)
    return (
        f"{key.kind} {known_hosts.fingerprint(key.blob)} ({key.file} line {key.line}, "
        f"since {changed:%Y-%m-%d %H:%M} UTC or before)"
    )


def _file(key: paramiko.PKey) -> str:
    name = key.get_name()
    return "ecdsa" if name.startswith("ecdsa") else name.removeprefix("ssh-")
