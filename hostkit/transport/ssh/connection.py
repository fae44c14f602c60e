"""A Fabric connection over a socket that is open already: the host key verified, the user logged in."""

from __future__ import annotations

from typing import Any

import fabric
import paramiko

from hostkit.transport.line import HostKey
from hostkit.transport.ssh.host_key_policy import RSA, HostKeyPolicy
from hostkit.transport.ssh.login import Login
from hostkit.transport.ssh.resolve import Endpoint

KINDS = (["ssh-ed25519"], ["ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"], list(RSA))


def log_in(
    end: Endpoint, policy: HostKeyPolicy, login: Login, sock: Any, *, connect: float, auth: float
) -> fabric.Connection:
    """Log in within `connect` seconds for the banner and `auth` for the key exchange and for each key.

    Raises what paramiko raises; the socket stays the caller's to close.
    """
    connection = fabric.Connection(
        end.address,
        user=end.user,
        port=end.port,
        # lazy: no file of the user's for Fabric or Invoke changes how hosts are reached
        config=fabric.Config(overrides={"load_ssh_configs": False}, lazy=True),
    )
    connection.client.set_missing_host_key_policy(policy)

    def transport(sock: Any, **kwargs: Any) -> paramiko.Transport:
        made = paramiko.Transport(sock, **kwargs)
        policy.prefer(made)
        return made

    connection.connect_kwargs = {
        "sock": sock,
        "transport_factory": transport,
        "auth_strategy": login,
        "timeout": auth,  # of the key exchange
        "banner_timeout": connect,
        "auth_timeout": auth,
        "channel_timeout": end.hop.host.timeouts.connect,
    }
    try:
        connection.open()
    except BaseException:
        connection.client.close()
        raise
    return connection


def offered_key(sock: Any, kinds: list[str], *, connect: float, auth: float) -> HostKey | None:
    """Return the host key of one of these kinds that the server offers, without a login; None where it has none."""
    transport = paramiko.Transport(sock)
    try:
        transport.get_security_options().key_types = kinds
        transport.banner_timeout = connect
        transport.start_client(timeout=auth)
        key = transport.get_remote_server_key()
    except paramiko.ssh_exception.IncompatiblePeer:
        return None
    finally:
        transport.close()
    return HostKey(key.get_name(), key.asbytes())
