"""`host-trust` accepts a hop's host key, when its fingerprint is the one that the user read elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hostkit.tasks.command import Outcome, Session, command

if TYPE_CHECKING:
    from rich.console import Console


@command(
    "host-trust",
    help={
        "host": "inventory name of the host whose key to trust",
        "fingerprint": "SHA256:… as read on the machine itself (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub)",
    },
    examples=(
        "host-trust ct129 --fingerprint SHA256:kVvQ6l0pVtH9XyZ2i1nGm8cR5sT4uW7aB3dE6fJ0hLM --dry-run",
        "host-trust ct129 SHA256:kVvQ6l0pVtH9XyZ2i1nGm8cR5sT4uW7aB3dE6fJ0hLM",
    ),
    acts=True,
)
def host_trust(session: Session, host: str, fingerprint: str) -> Outcome:
    """Trust a host key whose fingerprint you read on the machine itself.

    The hops before it are verified as always. The key is added to hostkit's own known_hosts, never to yours.
    """
    from hostkit.transport.host_trust import accept

    accepted = accept(session.connections, host, fingerprint, dry_run=session.dry_run)
    document: dict[str, Any] = {
        "schema": "hostkit.host-trust/1",
        "host": host,
        "fingerprint": accepted.fingerprint,
        "kind": accepted.kind,
        "names": list(accepted.names),
        "file": str(accepted.file),
        "was_trusted": accepted.before,
        "written": accepted.written,
    }
    return Outcome(document, render=lambda console: _show(console, document))


TASKS = [host_trust]


def _show(console: Console, document: dict[str, Any]) -> None:
    from rich.text import Text

    if document["was_trusted"]:
        state = "already trusted"
    elif document["written"]:
        state = f"trusted (added to {document['file']})"
    else:
        state = f"would be trusted (dry run; {document['file']} is unchanged)"
    console.print(Text(f"{document['host']}: {document['kind']} {document['fingerprint']} {state}"))
