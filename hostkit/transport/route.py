"""The route to a host: its hops in order. The one place from which every ssh, pct and sudo command is built."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from hostkit.errors import ConfigError, UsageError
from hostkit.inventory.models import Host, Inventory

_SPLIT = 'host=$1; path=$2; shift 2; exec pct exec $host $path "$@"'
# On each hop that is only passed through, as the parent of its ssh or pct: $1 is the hop's name. It names the hop on
# stderr, so that a command that hangs tells how far it got. And it ends that ssh or pct once the login that started it
# is gone (the parent of its session's leader changes): without a terminal both would stay for as long as they hang.
# What watches is the child of what it may kill: while that is its parent, no other process has the number.
# In /proc/PID/stat the name may hold anything, so that fields count from its last parenthesis.
# No single quote, newline, `!` or backslash, so that each login shell reads it alike.
_PARENT = '{ read -r p <%s && p=${p##*")" } && p=${p#* } && p=${p%%%% *}; } 2>/dev/null || p='
_PASS_THROUGH = "; ".join(
    [
        'echo "hostkit-hop $1" >&2',
        "shift",
        "l=",
        '{ read -r l </proc/$$/stat && l=${l##*")" } && l=${l#* * * } && l=${l%% *}; } 2>/dev/null',
        _PARENT % "/proc/$l/stat",
        "o=$p",
        'while [ "$o" ] && sleep 2',
        "do " + _PARENT % "/proc/self/stat",
        '[ "$p" = $$ ] || exit',
        _PARENT % "/proc/$l/stat",
        '[ "$p" = "$o" ] || kill -KILL $$',
        'done </dev/null >/dev/null 2>&1 & exec "$@"',
    ]
)
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
    vantage: str | None = None  # another machine that the route is seen from; None: this one
    ciphers: tuple[tuple[str, str], ...] = ()  # by the name of a connected hop: what its ssh offers, in order

    @classmethod
    def to(
        cls, inventory: Inventory, name: str, here: str | None = None, *, standing_there: bool = False
    ) -> Route:
        """Return the route to `name`, seen from `here` (default: this machine, outside the inventory).

        `standing_there`: this machine is `here`, so `local` hosts and all paths of the inventory are its own.
        """
        for wanted in (name, here):
            if wanted is not None and wanted not in inventory.hosts:
                near = difflib.get_close_matches(wanted, inventory.hosts, n=1)
                hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(sorted(inventory.hosts))}"
                raise UsageError(f"no host {wanted!r} in the inventory", hint=hint)
        own = here is None or standing_there
        hops: list[Hop] = []
        current: str | None = name
        while current is not None:
            if any(hop.name == current for hop in hops):
                raise ConfigError(f"a loop in via: {' -> '.join([*(h.name for h in hops), current])}")
            host = inventory.hosts.get(current)
            if host is None:
                raise ConfigError(f"via: no host {current!r} in the inventory", where=hops[-1].name)
            local = current == here or (host.local is True and own)
            hops.append(Hop(current, host, here=local))
            current = None if local else host.via
        route = cls(name, tuple(reversed(hops)), vantage=None if own else here)
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
                    f"no tunnel to {hop.name} through {behind}",
                    where=hop.name,
                    hint="set `login: there`",
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

    def hops_reached(self, stderr: bytes) -> tuple[str, ...]:
        """Return the hops, short of the host itself, that a command which was wrapped here is known to have reached."""
        names = [hop.name for hop in self.hops]
        first = (
            len(names) - len(self.wrapped()) - 1
        )  # the hops before it are connected, else nothing runs on it
        for index in range(max(0, first), len(names) - 1):
            if f"hostkit-hop {names[index]}\n".encode() not in stderr:
                return tuple(names[:index])
        return tuple(names[:-1])

    def wrap(self, argv: list[str]) -> list[str]:
        """Return what is executed on the last connected hop (or locally) so that argv runs on the host."""
        return self._wrap(argv, standing=False, watched=True)

    def _wrap(self, argv: list[str], *, standing: bool, watched: bool = False) -> list[str]:
        """`standing`: what runs it is on the local hop as the user who is meant already.

        `watched`: each hop on the way names itself, and ends what hangs there once nobody waits for it.
        """
        command = list(argv)
        for hop in reversed(self.hops):
            if standing and hop.here:
                break
            command = _as_user(hop.host.sudo, command)
            if watched and hop is not self.hops[-1]:  # outside of sudo, which may be allowed for pct alone
                command = ["sh", "-c", _PASS_THROUGH, "sh", hop.name, *command]
            if hop not in self.wrapped():
                break
            if hop.kind == "pct":
                # pct hands the caller's environment down, with a PATH of its own; HOME and PATH are the container's
                env = [f"PATH={CT_PATH}", "HOME=/root", "USER=root", "LC_ALL=C.UTF-8"]
                command = ["pct", "exec", str(hop.host.pct), "--", "env", "-i", *env, *command]
            else:
                command = [*self._ssh(hop), shlex.join(command)]
        return command

    def _ssh(self, hop: Hop) -> list[str]:
        return ["ssh", "-T", *ssh_options(hop, self._owns_paths(hop)), ssh_destination(hop)]

    def _owns_paths(self, hop: Hop) -> bool:
        """May the hop's identity, ssh_config and known_hosts be used? They lie where the inventory's ssh runs."""
        index = self.hops.index(hop)
        if hop.host.login == "there" and hop.host.via is not None:
            return index > 0 and self.hops[index - 1].name == hop.host.via
        return self.vantage is None

    def piped_argv(self, argv: list[str], *, watched: bool = False) -> list[str]:
        """Return what a program of ours on the vantage point starts, so that argv runs on the route's host.

        `watched`: no hop keeps what hangs there once the program has ended.
        """
        chain = self.connected()
        command = self._wrap(argv, standing=True, watched=watched)
        if not chain:
            return command
        ssh: list[str] = []
        proxy: str | None = None
        for hop in chain:
            ssh = ["ssh", "-T", *self._options(hop, proxy)]
            proxy = shlex.join([*ssh, "-W", "[%h]:%p", ssh_destination(hop)])
        return [*ssh, ssh_destination(chain[-1]), shlex.join(command)]

    def ssh_config_queries(self) -> dict[str, list[str]]:
        """Return, by hop, the `ssh -G` that shows on the vantage point how its ssh would connect to it."""
        return {
            hop.name: ["ssh", "-G", *self._options(hop, None), ssh_destination(hop)]
            for hop in self.connected()
        }

    def _options(self, hop: Hop, proxy: str | None) -> list[str]:
        settings = {"Ciphers": dict(self.ciphers).get(hop.name), "ProxyCommand": proxy}
        return ssh_options(hop, self._owns_paths(hop), settings)

    def rsync_source(self) -> RsyncSource:
        """Return how an rsync that runs on the vantage point reads from the route's host.

        Behind more than one shell only file names given by --files-from arrive as they are.
        """
        last = self.hops[-1]
        if last.kind == "local":
            return RsyncSource((), last.name, ())
        rsh: list[str] = []
        proxy: str | None = None
        shells = 0  # that read the rest
        for hop in self.hops:
            if hop.kind == "ssh":
                ssh = ["ssh", "-T", *self._options(hop, proxy)]
                if hop in self.connected():
                    proxy = shlex.join([*ssh, "-W", "[%h]:%p", ssh_destination(hop)])
                    rsh, shells = ssh, 1
                else:
                    proxy = None
                    rsh += _quoted(ssh, shells)
                    shells += 1
                if hop is not last:
                    rsh.append(ssh_destination(hop))
            elif hop.kind == "pct":
                # rsync gives --rsync-path as one word, and counts on a shell to split it: here there is none else
                rsh += ["pct", "exec"] if shells else ["sh", "-c", _SPLIT, "sh"]
            if hop is not last and hop.kind == "ssh" and hop.host.sudo:
                rsh += _as_user(hop.host.sudo, [])
        sudo = _as_user(last.host.sudo, [])
        if last.kind == "pct":
            env = ["env", f"PATH={CT_PATH}", "HOME=/root", "LC_ALL=C.UTF-8"]
            return RsyncSource(tuple(rsh), str(last.host.pct), ("--", *env, *sudo, "rsync"))
        return RsyncSource(tuple(rsh), ssh_destination(last), (*sudo, "rsync"))


def ssh_destination(hop: Hop) -> str:
    """The word that names the hop to ssh: its alias, else its inventory name (the address goes in HostName)."""
    return hop.host.alias or hop.name


def ssh_options(
    hop: Hop, owns_paths: bool = True, settings: Mapping[str, str | None] = MappingProxyType({})
) -> list[str]:
    """Return ssh's options for one hop; the address never appears where a colon could be misread.

    `settings`: more of them, or others in the place of the usual ones (ssh_config(5)); None leaves one out.
    """
    options = [] if not (owns_paths and hop.host.ssh_config) else ["-F", hop.host.ssh_config]
    for key, value in {**_settings(hop, owns_paths), **settings}.items():
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
        "UpdateHostKeys": "no",  # ssh would write keys that it learns into the known_hosts of the host it runs on
        "CheckHostIP": "no",  # before OpenSSH 8.5 it writes the address that a name has into the known_hosts there too
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
        "LogLevel": "INFO",  # says why a connection was lost
    }


def _as_user(user: str | None, argv: list[str]) -> list[str]:
    return argv if user is None else ["sudo", "-n", "-u", user, "--", *argv]


def _quoted(argv: list[str], shells: int) -> list[str]:
    for _ in range(shells):
        argv = [shlex.quote(word) for word in argv]
    return argv


def _config_word(value: str) -> str:
    return f'"{value}"' if " " in value else value


def _rsh_word(word: str) -> str:
    """Quote a word for rsync's own splitting of -e, which knows quotes (doubled inside) but no backslash."""
    if not any(c in word for c in " '\""):
        return word
    quote = "'" if "'" not in word else '"'
    return quote + word.replace(quote, quote * 2) + quote
