"""The fleet's links: the laptop reaches ct129 and nothing else; pve and its containers are behind ct129."""

from __future__ import annotations

import subprocess

from tests.fleet.hosts import CT129, INNER, LAPTOP, OUTER, PVE, port
from tests.fleet.needs import SYSTEM_PATH
from tests.fleet.slot import Slot

LAN = "lan0"  # pve's end of the laptop's cable


def ip(*lines: str, within: int | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run `ip` commands, in the network namespace of process `within` when given."""
    enter = [] if within is None else ["nsenter", "-t", str(within), "-n"]
    return subprocess.run(
        [*enter, "ip", "-batch", "-"],
        input="\n".join(lines) + "\n",
        text=True,
        check=check,
        capture_output=True,
        env={"PATH": SYSTEM_PATH},
    )


def connect(slot: Slot, pve: int) -> None:
    """Make the bridges on pve and the cable to the laptop. The containers plug themselves in when they start."""
    mac = f"02:77:{slot.number:02x}:00:0{{}}:00"  # given, or it would change with the ports, and neighbours be lost
    ip(
        f"link add {OUTER} address {mac.format(1)} type bridge",
        f"link add {INNER} address {mac.format(0)} type bridge",
        f"addr add {slot.inner(PVE)}/24 dev {INNER}",
        "link set lo up",
        f"link set {OUTER} up",
        f"link set {INNER} up",
        within=pve,
    )
    ip(f"link add {slot.link} type veth peer name {LAN} netns {pve}")
    ip(f"link set {LAN} master {OUTER}", f"link set {LAN} up", within=pve)
    # The laptop must not get at pve by its default route: ct129 is the only way in.
    ip(
        f"addr add {slot.outer(LAPTOP)}/24 dev {slot.link}",
        f"link set {slot.link} up",
        _wall(slot, "replace"),
    )


def disconnect(slot: Slot) -> None:
    """Take away what stands in this machine's own namespace; fine if it is not there."""
    ip(f"link del {slot.link}", check=False)
    ip(_wall(slot, "del"), check=False)


def _wall(slot: Slot, verb: str) -> str:
    return f"route {verb} unreachable {slot.inner(0)}/24"


def unplug(pve: int, *, inner: bool) -> None:
    """Pull a cable: nothing passes any more, and nobody is told."""
    ip(f"link set {port(CT129, INNER) if inner else LAN} nomaster", within=pve)


def plug(pve: int, *, inner: bool) -> None:
    ip(f"link set {port(CT129, INNER) if inner else LAN} master {INNER if inner else OUTER}", within=pve)
