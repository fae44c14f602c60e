"""A server that is silent is told from one that hangs up, whatever the time that was left for either."""

from __future__ import annotations

import paramiko
import pytest

from hostkit.errors import RemoteTimeoutError, UnreachableError
from hostkit.inventory.models import Host
from hostkit.transport.route import Hop
from hostkit.transport.ssh.errors import connect_errors
from hostkit.transport.ssh.resolve import resolve


def without_banner(cause: Exception) -> None:
    """As paramiko says it: the same words for both, and what was caught as their context."""
    try:
        raise cause
    except Exception as error:
        raise paramiko.SSHException("Error reading SSH protocol banner" + str(error))  # noqa: B904


@pytest.mark.report("e3")
@pytest.mark.parametrize(
    ("cause", "kind", "said"),
    [
        (TimeoutError(), RemoteTimeoutError, "sent no SSH banner"),
        (EOFError(), UnreachableError, "closed the connection before sending an SSH banner"),
    ],
    ids=["silent", "hung up"],
)
def test_silence_is_late_also_where_the_whole_commands_time_was_less_than_the_budget(
    cause: Exception, kind: type[Exception], said: str
) -> None:
    host = Host.model_validate({"address": "127.0.0.1", "port": 22, "timeouts": {"connect": "150s"}})
    with pytest.raises(UnreachableError, match=said) as caught, connect_errors(resolve(Hop("a", host)), ()):
        without_banner(cause)
    assert type(caught.value) is kind
    assert "150" not in str(caught.value), "nobody has waited for so long"
    assert "Error reading" not in str(caught.value), "paramiko's own words are for --debug"
