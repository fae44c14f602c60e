"""The route to a host: its hops in order. The one place from which every ssh, pct and sudo command is built."""

from __future__ import annotations

import difflib
import shlex
from dataclasses import dataclass
from typing import Literal

from hostkit.errors import ConfigError, UsageError
from hostkit.inventory.models import Host, Inventory

CT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Hop:
    """One host on the way. `here`: commands are started on this very machine (the vantage point)."""

    name: str
    host: Host
    here: bool = False

    @property
    def kind(self) -> Literal["local", "ssh", "pct"]:
        if self.here:
            return "local"
        return "pct" if self.host.pct is not None else "ssh"


@dataclass(frozen=True, slots=True)
class RsyncSource:
    """How an rsync on the vantage host names a file on the route's host."""

    rsh: tuple[str, ...]  # empty: the same host, a plain path
    host: str
    rsync_path: tuple[str, ...]

    def options(self) -> list[str]:
        """Return the `-e` and `--rsync-path` options."""
        if not self.rsh:
            return []
        return ["-e", " ".join(_rsh_word(w) for w in self.rsh), "--rsync-path=" + " ".join(self.rsync_path)]

    def spec(self, path: str = "") -> str:
        """Return `host:path`; leave the path out with --files-from, which takes any name."""
        return f"{self.host}:{path}" if self.rsh else path


@dataclass(frozen=True, slots=True)
class Route:
    """The hops to `host`, seen from the vantage point: an optional local hop, then ssh and pct hops."""

    host: str
    hops: tuple[Hop, ...]
    vantage: str | None = None  # None: the machine whose view the inventory's paths have

    @classmethod
    def to(cls, inventory: Inventory, name: str, here: str | None = None) -> Route:
        """Return the route to `name`, seen from `here` (default: a machine outside the inventory)."""
        for asked in (name, here):
            if asked is not None and asked not in inventory.hosts:
                near = difflib.get_close_matches(asked, inventory.hosts, n=1)
                hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(sorted(inventory.hosts))}"
                raise UsageError(f"no host {asked!r} in the inventory", hint=hint)
        hops: list[Hop] = []
        current: str | None = name
        while current is not None:
            if any(hop.name == current for hop in hops):
                raise ConfigError(f"a loop in via: {' -> '.join([*(h.name for h in hops), current])}")
            host = inventory.hosts.get(current)
            if host is None:
                raise ConfigError(f"via: {current} is no host of the inventory", where=hops[-1].name)
            local = current == here or (host.local is True and here is None)
            hops.append(Hop(current, host, here=local))
            current = None if local else host.via
        route = cls(name, tuple(reversed(hops)), vantage=here)
        route._check()
        return route

    def _check(self) -> None:
        behind = ""
        for index, hop in enumerate(self.hops):
            if hop.kind == "pct" and index == 0:
                raise ConfigError(
                    f"{hop.name} is a container, and no `via` says on which host", where=hop.name
                )
            if hop.kind == "ssh" and hop.host.local:
                raise ConfigError(
                    f"{hop.name} is `local`, and cannot be reached from {self.vantage}", where=hop.name
                )
            if hop.kind == "ssh" and index and behind and hop.host.login == "forward":
                raise ConfigError(
                    f"{hop.name} cannot be tunnelled to through {behind}",
                    where=hop.name,
                    hint="write `login: there`",
                )
            if hop.kind == "pct" or (hop.kind == "ssh" and index and self._there(index)):
                behind = hop.name

    def _there(self, index: int) -> bool:
        """Is ssh for this hop run on the hop before it? Not for the first: that one is run on the vantage point."""
        outer = self.hops[index - 1]
        return self.hops[index].host.login == "there" and not outer.here

    def connected(self) -> tuple[Hop, ...]:
        """Return the ssh hops that are connected to from the vantage point, each through the one before it."""
        chain: list[Hop] = []
        for index, hop in enumerate(self.hops):
            if hop.kind == "local":
                continue
            if hop.kind != "ssh" or (index and self._there(index)):
                break
            chain.append(hop)
        return tuple(chain)

    def wrapped(self) -> tuple[Hop, ...]:
        """Return the hops that are entered by a command on the hop before them."""
        first = len(self.connected()) + (1 if self.hops[0].kind == "local" else 0)
        return self.hops[first:]

    def wrap(self, argv: list[str]) -> list[str]:
        """Return what is executed on the last connected hop (or locally) so that argv runs on the host."""
        words = list(argv)
        for hop in reversed(self.hops):
            words = _as_user(hop.host.sudo, words)
            if hop not in self.wrapped():
                break
            if hop.kind == "pct":
                # pct hands the caller's environment down, with a PATH of its own; HOME and PATH are the container's
                env = [f"PATH={CT_PATH}", "HOME=/root", "USER=root", "LC_ALL=C.UTF-8"]
                words = ["pct", "exec", str(hop.host.pct), "--", "env", "-i", *env, *words]
            else:
                words = [*self._ssh(hop), shlex.join(words)]
        return words

    def _ssh(self, hop: Hop, *, proxy: str | None = None) -> list[str]:
        return ["ssh", "-T", *ssh_options(hop, self._owns_paths(hop), proxy=proxy), host_word(hop)]

    def _owns_paths(self, hop: Hop) -> bool:
        """May the hop's identity, ssh_config and known_hosts be used? They lie where the inventory's ssh runs."""
        index = self.hops.index(hop)
        if hop.host.login == "there" and hop.host.via is not None:
            return index > 0 and self.hops[index - 1].name == hop.host.via
        return self.vantage is None

    def openssh_config(self) -> str:
        """Return an ssh_config with a Host block for each connected hop, named by the inventory."""
        lines = ["# made by hostkit; Host names are the inventory's"]
        before: Hop | None = None
        for hop in self.connected():
            lines.append(f"Host {host_word(hop)}")
            options = _settings(hop, self._owns_paths(hop))
            options["ProxyJump"] = host_word(before) if before else None
            lines += [f"  {key} {_config_word(value)}" for key, value in options.items() if value is not None]
            before = hop
        config = next((h.host.ssh_config for h in self.connected() if h.host.ssh_config), None)
        lines += ["Match all", f"  Include {_config_word(config or '~/.ssh/config')}"]
        return "\n".join(lines) + "\n"

    def openssh_argv(self, argv: list[str], *, config: str) -> list[str]:
        """Return the OpenSSH argv for this machine; `config` is a file that holds `openssh_config()`."""
        chain = self.connected()
        words = self.wrap(argv)
        if not chain:
            return words
        return ["ssh", "-T", "-F", config, host_word(chain[-1]), shlex.join(words)]

    def rsync_source(self) -> RsyncSource:
        """Return how an rsync that runs on the vantage host reads from the route's host."""
        *outer, last = self.hops
        sudo = ("sudo", "-n", "-u", last.host.sudo, "--") if last.host.sudo else ()
        if last.kind == "local":
            return RsyncSource((), last.name, ())
        rsh: list[str] = []
        proxy: str | None = None
        for hop in (*outer, last):
            if hop.kind == "ssh":
                if proxy is not None and hop in self.connected():
                    rsh = []
                ssh = ["ssh", "-T", *ssh_options(hop, self._owns_paths(hop), proxy=proxy)]
                proxy = shlex.join([*ssh, "-W", "[%h]:%p", host_word(hop)])
                rsh += ssh if hop is last else [*ssh, host_word(hop)]
            elif hop.kind == "pct":
                rsh += ["pct", "exec"]
            if hop is not last and hop.host.sudo:
                rsh += ["sudo", "-n", "-u", hop.host.sudo, "--"]
        if last.kind == "pct":
            env = ("env", f"PATH={CT_PATH}", "HOME=/root", "LC_ALL=C.UTF-8")
            return RsyncSource(tuple(rsh), str(last.host.pct), ("--", *env, *sudo, "rsync"))
        return RsyncSource(tuple(rsh), host_word(last), (*sudo, "rsync"))


def host_word(hop: Hop) -> str:
    """The word that names the hop to ssh: its alias, else its inventory name (the address goes in HostName)."""
    return hop.host.alias or hop.name


def ssh_options(hop: Hop, owns_paths: bool = True, *, proxy: str | None = None) -> list[str]:
    """Return ssh's options for one hop; the address never appears where a colon could be misread."""
    options = [] if not (owns_paths and hop.host.ssh_config) else ["-F", hop.host.ssh_config]
    settings = _settings(hop, owns_paths) | {"ProxyCommand": proxy}
    for key, value in settings.items():
        if value is not None:
            options += ["-o", f"{key}={value if key == 'ProxyCommand' else _config_word(value)}"]
    return options


def _settings(hop: Hop, owns_paths: bool) -> dict[str, str | None]:
    host, budget = hop.host, hop.host.timeouts
    identity = host.identity if owns_paths else None
    return {
        "HostName": host.address.replace("%", "%%") if host.address else None,
        "User": host.user,
        "Port": str(host.port) if host.port else None,
        "IdentityFile": identity,
        "IdentitiesOnly": "yes" if identity else None,
        "UserKnownHostsFile": host.known_hosts if owns_paths else None,
        "StrictHostKeyChecking": "yes",
        "BatchMode": "yes",
        "ConnectTimeout": str(max(1, round(budget.connect))),
        "ServerAliveInterval": str(max(1, round(budget.idle / 3))),
        "ServerAliveCountMax": "3",
        "ControlMaster": "no",
        "ControlPath": "none",
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "ClearAllForwardings": "yes",
        "PermitLocalCommand": "no",
        "RemoteCommand": "none",
        "LogLevel": "ERROR",
    }


def _as_user(user: str | None, words: list[str]) -> list[str]:
    return words if user is None else ["sudo", "-n", "-u", user, "--", *words]


def _config_word(value: str) -> str:
    return f'"{value}"' if " " in value else value


def _rsh_word(word: str) -> str:
    """Quote a word for rsync's own splitting of -e, which knows quotes (doubled inside) but no backslash."""
    if not any(c in word for c in " '\""):
        return word
    quote = "'" if "'" not in word else '"'
    return quote + word.replace(quote, quote * 2) + quote
