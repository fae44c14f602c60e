"""Public key login: the named keys first, then the agent's; and exactly why a login was refused."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

import paramiko
from paramiko.agent import AgentKey, AgentSSH

from hostkit.errors import AuthError, RemoteTimeoutError
from hostkit.transport.ssh import keys as ssh_keys
from hostkit.transport.ssh.resolve import Endpoint

AGENT_ANSWERS = 5.0  # seconds


class Agent(AgentSSH):
    """The agent behind one socket. Constructing it raises OSError or SSHException when it does not answer."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.settimeout(AGENT_ANSWERS)
            self._socket.connect(path)
            self._connect(self._socket)  # type: ignore[attr-defined]
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        self._close()  # type: ignore[attr-defined]
        self._socket.close()


@dataclass
class Offers:
    """What could be offered, and what could not and why: the text of a refusal is made of it."""

    offered: list[str] = field(default_factory=list)
    locked: list[Path] = field(default_factory=list)
    missing: list[Path] = field(default_factory=list)
    unusable: list[str] = field(default_factory=list)
    agent: str = "no agent"


class Login:
    """One login on one connection. Given to SSHClient.connect as its `auth_strategy`."""

    def __init__(self, endpoint: Endpoint, hops_reached: tuple[str, ...]) -> None:
        self._end = endpoint
        self._hops_reached = hops_reached
        self._offers = Offers()

    def authenticate(self, transport: paramiko.Transport) -> None:
        """Offer key after key. Raises AuthError that says what was offered and what to try."""
        with contextlib.closing(self._keys()) as keys:
            for label, key in keys:
                self._offers.offered.append(label)
                try:
                    more = transport.auth_publickey(self._end.user, key)
                except paramiko.BadAuthenticationType as error:
                    raise self._refusal(
                        f"the server accepts {' or '.join(error.allowed_types)}, but no public key"
                    ) from error
                except paramiko.AuthenticationException as error:
                    if "timeout" in str(error).lower():
                        raise RemoteTimeoutError(
                            "the login was not answered in time",
                            hop=self._end.name,
                            hops_reached=self._hops_reached,
                        ) from error
                    if not transport.is_active():
                        raise self._cut() from error
                    continue
                except (paramiko.SSHException, EOFError, OSError) as error:
                    raise self._cut() from error
                if not more:
                    return
                raise self._refusal(f"the server requires a second factor ({', '.join(more)})")
        raise self._refusal(None)

    def _cut(self) -> AuthError:
        number = len(self._offers.offered)
        return AuthError(
            f"the server closed the connection after {number} key{'s' if number > 1 else ''} for user {self._end.user}"
            + (": too many keys offered" if number > 1 else ""),
            hop=self._end.name,
            hops_reached=self._hops_reached,
            hint="name the right key with `identity:` in the inventory",
        )

    def _refusal(self, why: str | None) -> AuthError:
        offers, user = self._offers, self._end.user
        locked = ", ".join(str(path) for path in offers.locked)
        if why:
            what, hint = why, "see AuthenticationMethods in the server's sshd_config"
        elif offers.offered:
            what = f"permission denied for user {user}; offered: {', '.join(offers.offered)}"
            hint = "is the user right, and is the key in that account's authorized_keys?"
            if locked:
                hint += f" Not offered: {locked} (needs a passphrase, {offers.agent})"
        elif locked:
            what = f"the key {locked} needs a passphrase, and {offers.agent}"
            hint = "ssh-add it, or name a key without a passphrase with `identity:`"
        else:
            files = ", ".join(str(path) for path in offers.missing)
            what = (
                f"no key to offer for user {user}: {f'no such file {files}; ' if files else ''}{offers.agent}"
            )
            hint = "name a key with `identity:` in the inventory"
        if offers.unusable:
            hint += f". Not usable: {'; '.join(offers.unusable)}"
        return AuthError(what, hop=self._end.name, hops_reached=self._hops_reached, hint=hint)

    def _keys(self) -> Generator[tuple[str, paramiko.PKey], None, None]:
        """Yield the named key files in order, then the agent's other keys unless only the named ones may be used."""
        agent = self._agent()
        try:
            held: list[AgentKey] = list(agent.get_keys()) if agent else []
            if agent is not None:
                self._offers.agent = "the agent does not have it" if held else "the agent is empty"
            for path in self._end.identities:
                key = self._load(path, held)
                if key is not None:
                    held = [other for other in held if other.asbytes() != key.asbytes()]
                    yield str(path), key
            for other in () if self._end.only_identities else held:
                yield f"agent key {other.comment or other.name}", other
        finally:
            if agent is not None:
                agent.close()

    def _agent(self) -> Agent | None:
        if self._end.agent is None:
            self._offers.agent = "no agent (SSH_AUTH_SOCK is not set)"
            return None
        try:
            return Agent(self._end.agent)
        except (OSError, paramiko.SSHException) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self._offers.agent = f"no agent answers at {self._end.agent} ({reason})"
            return None

    def _load(self, path: Path, held: list[AgentKey]) -> paramiko.PKey | None:
        public = path.with_name(path.name + ".pub")
        try:
            return ssh_keys.load(path)
        except (FileNotFoundError, NotADirectoryError):
            if not public.exists():
                self._offers.missing.append(path)
                return None
        except PermissionError:
            self._offers.unusable.append(f"{path} cannot be read")
            return None
        except (
            paramiko.PasswordRequiredException,
            TypeError,
        ):  # TypeError: cryptography's word for "encrypted"
            pass
        except (paramiko.SSHException, ValueError, OSError):
            self._offers.unusable.append(f"{path} {ssh_keys.what_it_is(path)}")
            return None
        # encrypted, or only its public half is here: an agent may hold it
        with contextlib.suppress(OSError, IndexError):
            blob = public.read_text().split()[1]
            for key in held:
                if key.get_base64() == blob:
                    return key
        if path.exists():
            self._offers.locked.append(path)
        else:
            self._offers.missing.append(path)
        return None
