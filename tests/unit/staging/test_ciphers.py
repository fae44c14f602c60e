"""The many bytes of a copy go by AES-GCM, where the machine has it in hardware and its ssh would offer it anyway."""

from __future__ import annotations

import subprocess

import pytest

from hostkit.errors import RemoteTimeoutError, UnreachableError
from hostkit.inventory.models import Host, Inventory
from hostkit.staging.transfer_route import _quick
from hostkit.transport.base import Completed
from hostkit.transport.fake import FakeTransport
from hostkit.transport.framed import FramedTransport
from hostkit.transport.local import LocalLine
from hostkit.transport.route import Hop, Route

CHACHA, CTR = "chacha20-poly1305@openssh.com", "aes256-ctr"
GCM128, GCM256 = "aes128-gcm@openssh.com", "aes256-gcm@openssh.com"


def route() -> Route:
    hosts = {
        "pve": {"address": "10.1.2.6"},
        "ct200": {"pct": 200, "via": "pve"},
        "ct129": {"address": "10.1.0.129"},
    }
    return Route.to(
        Inventory.model_validate({"hostkit": 1, "archive": "/a", "hosts": hosts}), "ct200", "ct129"
    )


def offered(*ciphers: str, exit: int = 0) -> FakeTransport:
    """A vantage host whose ssh says that it would offer these."""
    said = f"user root\nciphers {','.join(ciphers)}\nmacs x\n".encode()
    return FakeTransport("ct129", lambda argv, _: Completed(tuple(argv), exit, said, b""))


def words(found: Route) -> list[str]:
    return [word for word in found.piped_argv(["true"]) if word.startswith("Ciphers=")]


def test_it_comes_first_and_the_others_stay_as_they_were() -> None:
    found = _quick(offered(CHACHA, CTR, GCM128, GCM256), route())
    assert words(found) == [f"Ciphers={GCM128},{GCM256},{CHACHA},{CTR}"]
    assert f"Ciphers={GCM128},{GCM256},{CHACHA},{CTR}" in " ".join(found.rsync_source().rsh)


@pytest.mark.parametrize("ciphers", [(CHACHA, CTR), (GCM256, CHACHA), (CHACHA,)])
def test_nothing_is_offered_that_was_not_and_nothing_changed_for_nothing(ciphers: tuple[str, ...]) -> None:
    assert words(_quick(offered(*ciphers), route())) == []


def test_where_aes_is_not_in_hardware_or_ssh_is_too_old_to_be_asked_all_stays_as_it_is() -> None:
    assert words(_quick(offered(CHACHA, GCM128, exit=1), route())) == []
    assert words(_quick(FakeTransport("ct129"), route())) == []


def test_a_slow_configuration_of_ssh_costs_a_moment_and_no_copy() -> None:
    def late(_argv: list[str], _stdin: bytes) -> Completed:
        raise RemoteTimeoutError("sh ran longer than 10 s", hop="ct129")

    assert words(_quick(FakeTransport("ct129", late), route())) == []


def test_a_host_that_is_not_reached_is_said_to_be() -> None:
    def away(_argv: list[str], _stdin: bytes) -> Completed:
        raise UnreachableError("no answer", hop="ct129")

    with pytest.raises(UnreachableError):
        _quick(FakeTransport("ct129", away), route())


def test_openssh_is_asked_about_the_very_hop_and_takes_what_it_is_given() -> None:
    here = FramedTransport(
        Route("here", (Hop("here", Host.model_construct(local=True), here=True),)), LocalLine("here")
    )
    hosts = {"pve": {"address": "10.1.2.6"}}
    asked = Route.to(Inventory.model_validate({"hostkit": 1, "archive": "/a", "hosts": hosts}), "pve")
    question = asked.ssh_config_queries()["pve"]
    before = subprocess.run(question, capture_output=True, text=True, check=True).stdout
    given = dict(_quick(here, asked).ciphers)
    if "pve" in given:  # this machine has it in hardware
        after = ["ssh", "-G", "-o", f"Ciphers={given['pve']}", "pve"]
        said = subprocess.run(after, capture_output=True, text=True, check=True).stdout
        assert sorted(ciphers(said)) == sorted(ciphers(before))
        assert "gcm" in ciphers(said)[0]


def ciphers(said: str) -> list[str]:
    return next(line for line in said.splitlines() if line.startswith("ciphers ")).split()[1].split(",")
