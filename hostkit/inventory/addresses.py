"""What an ssh server's address may look like, and what to write for the other ways in which people write one."""

from __future__ import annotations

import ipaddress
import re

from hostkit.inventory.faults import shown

_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_ZONE = re.compile(r"[A-Za-z0-9_.-]{1,32}")
_PORT = re.compile(r"[0-9]{1,5}")


def host_address(text: str) -> str:
    """Return text if it is a host name, an IPv4 or an IPv6 address (with its %zone). Raises ValueError."""
    if "://" in text:
        rest = text.split("://", 1)[1].rstrip("/")
        raise ValueError(f"{shown(text)} is a URL; write {_parts(rest)}")
    if "/" in text or "~" in text or "\\" in text:
        raise ValueError(f"{shown(text)} is a path or a network; write one host name or IP address")
    if "@" in text or text.startswith("[") or _has_port(text):
        raise ValueError(f"{shown(text)} is more than an address; write {_parts(text)}")
    if text != text.strip() or any(character.isspace() for character in text) or "," in text:
        raise ValueError(
            f"{shown(text)} is not one address; write one host name or IP address, without blanks"
        )
    if ":" in text:
        return _ipv6(text)
    if re.fullmatch(r"[0-9.]+", text):
        return _ipv4(text)
    return _name(text)


def _has_port(text: str) -> bool:
    head, colon, _ = text.rpartition(":")
    return bool(colon) and ":" not in head and bool(head)


def _parts(text: str) -> str:
    """Return what to write for `user@host:port`, as keys of the inventory."""
    user, _, rest = text.rpartition("@")
    port = ""
    if rest.startswith("["):
        address, _, tail = rest[1:].partition("]")
        port = tail.removeprefix(":")
    elif _has_port(rest):
        address, _, port = rest.rpartition(":")
    else:
        address = rest
    words = [f"address: {_bare(address)}"]
    if user:
        words.insert(0, f"user: {_bare(user.partition(':')[0])}")
    if _PORT.fullmatch(port):
        words.append(f"port: {int(port)}")
    return ", ".join(words)


def _bare(text: str) -> str:
    quoted = shown(text)
    return quoted if ":" in text or quoted[1:-1] != text else text


def _ipv6(text: str) -> str:
    address, percent, zone = text.partition("%")
    try:
        parsed = ipaddress.IPv6Address(address)
    except ValueError as error:
        raise ValueError(
            f"{shown(text)} is not an IPv6 address; write a host name, or an address like fe80::1%eth0"
        ) from error
    if percent and not _ZONE.fullmatch(zone):
        raise ValueError(f"{shown(text)} has no sound zone; write the interface after %, as in fe80::1%eth0")
    if parsed.is_link_local and not percent:
        raise ValueError(f"{shown(text)} is link-local; write its interface too, as in {text}%eth0")
    return _one_host(text, parsed)


def _ipv4(text: str) -> str:
    try:
        return _one_host(text, ipaddress.IPv4Address(text))
    except ipaddress.AddressValueError as error:
        raise ValueError(
            f"{shown(text)} is not an IPv4 address ({error}); write four numbers up to 255, without leading zeros"
        ) from error


def _one_host(text: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    if address.is_unspecified or address.is_multicast or str(address) == "255.255.255.255":
        raise ValueError(f"{shown(text)} is no single host; write the address of one host")
    return text


def _name(text: str) -> str:
    if not text.isascii():
        raise ValueError(f"{shown(text)} has letters beyond ASCII; write the name as DNS has it (xn--...)")
    labels = text.removesuffix(".").split(".")
    if len(text) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(
            f"{shown(text)} is not a host name; write letters, digits, - and . (not at the ends), or an IP address"
        )
    if labels[-1].isdigit():
        raise ValueError(
            f"{shown(text)} ends in a number and is no IP address; write a host name or an IP address"
        )
    return text


def login_name(text: str) -> str:
    """Return text if it can be a login name. Raises ValueError."""
    if text.startswith("-") or any(c.isspace() or not c.isprintable() or c in ":/'\"`$;|&<>()" for c in text):
        raise ValueError(f"{shown(text)} is not a login name; write one word, such as root")
    return text


def ssh_alias(text: str) -> str:
    """Return text if it can be a Host of an ssh config: one word, no pattern, no option. Raises ValueError."""
    if text.startswith("-") or any(
        c.isspace() or not c.isprintable() or c in "*?!,/@\"'`$;|&<>()" for c in text
    ):
        raise ValueError(
            f"{shown(text)} is not an ssh alias; write one Host of your ssh config, as you type it after ssh"
        )
    return text
