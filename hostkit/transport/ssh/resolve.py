"""What the user's own OpenSSH would do for a hop, from `ssh -G`: Include and Match count."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from hostkit.errors import ConfigError, UnreachableError
from hostkit.inventory.models import Host
from hostkit.transport.route import Hop, ssh_destination, ssh_options


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where and how to connect for one hop."""

    hop: Hop
    address: str
    port: int
    user: str
    identities: tuple[Path, ...]
    only_identities: bool  # the inventory or ssh config names the keys: nothing else is offered
    agent: str | None  # socket of the agent, None: no agent
    known_hosts: tuple[Path, ...]
    host_key_alias: str | None = None
    jumps: tuple[str, ...] = ()  # ProxyJump of an alias, outermost first
    proxy_command: str | None = None

    @property
    def name(self) -> str:
        return self.hop.name


def resolve(hop: Hop) -> Endpoint:
    """Ask `ssh -G` about a hop that is connected to from this machine."""
    argv = ["ssh", "-G", *ssh_options(hop), ssh_destination(hop)]
    try:
        done = subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, timeout=20, check=False)
    except FileNotFoundError:
        if hop.host.alias:
            raise ConfigError(
                f"alias {hop.host.alias} needs the OpenSSH client here", where=hop.name
            ) from None
        return _endpoint(hop, {})
    except subprocess.TimeoutExpired:
        raise UnreachableError("`ssh -G` did not end; is a `Match exec` slow?", hop=hop.name) from None
    if done.returncode:
        fault = done.stderr.decode("utf-8", "replace").strip()
        raise ConfigError(f"invalid ssh configuration: {fault}", where=hop.name)
    settings: dict[str, list[str]] = {}
    for line in done.stdout.decode("utf-8", "surrogateescape").splitlines():
        key, _, value = line.partition(" ")
        settings.setdefault(key.lower(), []).append(value)
    return _endpoint(hop, settings)


def _endpoint(hop: Hop, settings: dict[str, list[str]]) -> Endpoint:
    host = hop.host

    def first(key: str) -> str | None:
        value = settings.get(key, [""])[0]
        return None if value in ("", "none") else value

    address = first("hostname") or host.address or host.alias or hop.name
    user = first("user") or host.user or pwd.getpwuid(os.getuid()).pw_name
    named = host.identity is not None
    listed = (
        [host.identity]
        if host.identity
        else settings.get("identityfile", ["~/.ssh/id_ed25519", "~/.ssh/id_rsa"])
    )
    via = host.via is not None
    return Endpoint(
        hop=hop,
        address=address,
        port=int(first("port") or host.port or 22),
        user=user,
        identities=tuple(_identity(path, address, user) for path in listed if path != "none"),
        only_identities=named or first("identitiesonly") == "yes",
        agent=_agent(settings.get("identityagent", ["SSH_AUTH_SOCK"])[0]),
        known_hosts=_known_hosts(host, settings),
        host_key_alias=first("hostkeyalias"),
        jumps=() if via else tuple((first("proxyjump") or "").split(",")) if first("proxyjump") else (),
        proxy_command=None if via else first("proxycommand"),
    )


def _agent(settings: str) -> str | None:
    """Return the agent's socket: `none`, the name of a variable (with or without $), or a path."""
    if settings == "none":
        return None
    name = settings.removeprefix("$")
    return (os.environ.get(name) or None) if name.isidentifier() else str(home(settings))


def home(path: str) -> Path:
    """Expand `~` as OpenSSH does: the home of the password file, whatever $HOME says."""
    if path == "~" or path.startswith("~/"):
        return Path(pwd.getpwuid(os.getuid()).pw_dir + path[1:])
    return Path(path)


def _identity(path: str, address: str, user: str) -> Path:
    me = pwd.getpwuid(os.getuid())
    return home(percent(path, d=me.pw_dir, u=me.pw_name, h=address, r=user))


def percent(text: str, **values: str) -> str:
    """Put values in the place of their %-tokens as OpenSSH does, in one pass: `%%h` is the text `%h`."""
    values["%"] = "%"
    return re.sub(r"%(.)", lambda token: values.get(token[1], token[0]), text, flags=re.DOTALL)


def _known_hosts(host: Host, settings: dict[str, list[str]]) -> tuple[Path, ...]:
    if host.known_hosts is not None:
        return (home(host.known_hosts),)
    files: list[Path] = []
    for key, default in (
        ("userknownhostsfile", "~/.ssh/known_hosts"),
        ("globalknownhostsfile", "/etc/ssh/ssh_known_hosts"),
    ):
        for value in settings.get(key, [default]):
            # ssh -G prints several files without quoting them
            files += (
                [home(value)] if os.access(home(value), os.F_OK) else [home(part) for part in value.split()]
            )
    return tuple(files)
