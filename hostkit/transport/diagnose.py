"""What ssh, pct, sudo and login shells print when they do not get as far as the command, and what that means.

Read only when the frame is missing or incomplete, and only for a better error: without a whole frame the answer is
unknown, whatever was printed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hostkit.errors import AuthError, HostKeyError, LostError, RemoteTimeoutError, UnreachableError
from hostkit.transport.line import UnansweredError
from hostkit.transport.route import Hop, Route

Make = type[UnreachableError]


@dataclass(frozen=True, slots=True)
class _Message:
    pattern: re.Pattern[str]
    error: Make
    what: str
    hint: str


def _c(pattern: str, error: Make, what: str, hint: str) -> _Message:
    return _Message(re.compile(pattern, re.IGNORECASE | re.MULTILINE), error, what, hint)


# {hop}: the hop that could not be entered, {outer}: the one before it, {0}: the pattern's group 1
_PCT = (
    _c(
        r"Configuration file '[^']*' does not exist|\bCT \d+ does not exist|no such (?:CT|container)\b",
        UnreachableError,
        "CT {ct} is not on {outer} (moved to another node?)",
        "`pct list` on each node, or `pvesh get /cluster/resources`; then set `via` in the inventory",
    ),
    _c(
        r"(?:CT|container|VM)\b[^\n]* is locked(?: \(([^)]*)\))?",
        UnreachableError,
        "CT {ct} is locked on {outer} ({0})",
        "wait for it to end; hostkit never unlocks a container",
    ),
    _c(
        r"can't lock file '[^'\n]*' - ([^\n]+)",
        UnreachableError,
        "CT {ct} is locked on {outer} ({0})",
        "another task holds the lock; hostkit never unlocks a container",
    ),
    _c(
        r"not running|failed to get (?:the )?init pid|is stopped",
        UnreachableError,
        "CT {ct} is not running on {outer}",
        "`pct status {ct}` there; hostkit never starts or stops a container",
    ),
    _c(
        r"\bpct: (?:command )?not found|(?:unknown command:?|command not found:) '?pct"
        r"|No such file.*\bpct\b|\bpct\b.*No such file",
        UnreachableError,
        "{outer} has no `pct`",
        "is {outer} the Proxmox host? `pct` may be in the PATH of root alone (`sudo: root`)",
    ),
    _c(
        r"^please run as root",
        UnreachableError,
        "`pct` on {outer} needs root",
        "log in there as root, or set `sudo: root` at {outer}",
    ),
    _c(
        r"ipcc_send_rec|unable to load access control list",
        UnreachableError,
        "Proxmox's cluster file system does not answer on {outer}",
        "`systemctl status pve-cluster` there",
    ),
)
_SSH = (
    _c(
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        HostKeyError,
        "its host key has CHANGED, according to ssh on {outer}",
        "`login: there` uses the known_hosts of {outer}: verify the key there",
    ),
    _c(
        r"host key verification failed|host key is known for|no matching host key fingerprint",
        HostKeyError,
        "its host key is not known on {outer}",
        "`login: there` uses the known_hosts of {outer}: log in from there once, and verify the key",
    ),
    _c(
        r"too many authentication failures",
        AuthError,
        "too many keys offered by {outer}",
        "name the key with `identity:` (a path on {outer})",
    ),
    _c(
        r"permission denied \(|no such identity",
        AuthError,
        "the login from {outer} was refused",
        "`login: there` uses the keys of {outer}: name one with `identity:`, or set `user`",
    ),
    _c(
        r"ssh: could not resolve hostname",
        UnreachableError,
        "{outer} cannot resolve its name",
        "is the address right as seen from {outer}?",
    ),
    _c(
        r"ssh: connect to host|kex_exchange_identification|banner exchange"
        r"|^connection (?:to \S+ port \d+ timed out|(?:closed|reset) by)",
        UnreachableError,
        "{outer} could not connect to it",
        "is {hop} up, and is the address right as seen from {outer}?",
    ),
    _c(
        r"no matching ([a-z ]+) found",
        UnreachableError,
        "ssh on {outer} and its server have no {0} in common",
        "one of the two is much older; configure what both support in ssh on {outer}",
    ),
    _c(
        r"session open refused by peer|open failed: administratively prohibited",
        UnreachableError,
        "channel refused",
        "see MaxSessions in its sshd_config",
    ),
    _c(
        r"\bssh: (?:command )?not found|(?:unknown command:?|command not found:) '?ssh\b",
        UnreachableError,
        "{outer} has no ssh client",
        "`login: forward` needs none",
    ),
)
_SUDO = _c(
    r"^sudo: (?!unable to resolve host)([^\n]+)|^Sorry, user \S+ (is not allowed [^\n]*)|(not in the sudoers file)"
    r"|sudo: (?:command )?not found|(?:unknown command:?|command not found:) '?sudo\b",
    AuthError,
    "sudo refused on {hop}: {0}",
    "allow it in sudoers without a password (NOPASSWD), or remove `sudo:` from the inventory",
)
_SHELL = _c(
    r"(account is (?:currently )?not available|account is disabled|must change your password|account has expired)",
    AuthError,
    "the account's login shell takes no commands: {0}",
    "give the account a shell, or name another with `user:`",
)
_CUT = re.compile(
    r"timeout, server \S+ not responding|connection (?:to \S+ )?closed by|broken pipe|connection reset"
    r"|client_loop: send",
    re.IGNORECASE,
)


def explain(route: Route, stdout: bytes, stderr: bytes) -> None:
    """Raise the right error when a wrapper on the way printed why it failed; return when nothing is known."""
    text = _text(stdout, stderr)
    wrapped = route.wrapped()
    for hop in reversed(wrapped):  # an inner one's message passes through the outer ones
        _match(hop, _before(route, hop), _PCT if hop.kind == "pct" else _SSH, text)
    for hop in route.hops:
        if hop.host.sudo:
            _match(hop, _before(route, hop), (_SUDO,), text)
        if hop.kind == "ssh" and hop in wrapped:
            _match(hop, _before(route, hop), (_SHELL,), text)


def explain_login_shell(hop: Hop, hops_before: tuple[str, ...], stdout: bytes, stderr: bytes) -> None:
    """Raise AuthError when the hop's login shell printed that it takes no commands."""
    _match(hop, hops_before, (_SHELL,), _text(stdout, stderr))


def _text(stdout: bytes, stderr: bytes) -> str:
    return (stderr + b"\n" + stdout[-4000:]).decode("utf-8", "replace")


def unanswered(route: Route, reply: UnansweredError, *, began: bool, seconds: float) -> RemoteTimeoutError:
    """Return the error for a command without an answer in its time, at the first hop that it did not get past.

    `began`: the frame began, so that the host itself was reached.
    """
    reached = route.hops_reached(reply.stderr)
    hop = route.hops[len(reached)]
    waited, outer = f"within {seconds:.0f} s", reached[-1] if reached else "this machine"
    if began:
        hop, reached = route.hops[-1], tuple(hop.name for hop in route.hops[:-1])
        what, hint = (
            f"the command started, but did not answer {waited}",
            "is a disk or network file system there stuck (processes in state D), or is it overloaded?",
        )
    elif hop.kind == "pct":
        what = f"`pct exec {hop.host.pct}` on {outer} did not start the command {waited}"
        hint = "is the container frozen or locked, or its storage stuck?"
    elif hop in route.wrapped():
        what, hint = (
            f"ssh on {outer} did not log in {waited}",
            f"is {hop.name}'s sshd frozen or overloaded?",
        )
    else:
        what, hint = f"the command did not start {waited}", "does a start-up file of its login shell hang?"
    return RemoteTimeoutError(what, hop=hop.name, hops_reached=reached, hint=hint)


def explain_cut(route: Route, stderr: bytes) -> None:
    """Raise LostError when an ssh on the way printed that it lost its connection while the command ran."""
    inner = [hop for hop in route.wrapped() if hop.kind == "ssh"]
    if inner and _CUT.search(stderr[-4000:].decode("utf-8", "replace")):
        raise LostError("the connection was lost", hop=inner[0].name, hops_reached=_before(route, inner[0]))


def _match(hop: Hop, hops_reached: tuple[str, ...], messages: tuple[_Message, ...], text: str) -> None:
    for message in messages:
        if match := message.pattern.search(text):
            detail = next((group for group in match.groups() if group), "no reason given")
            names = {
                "ct": hop.host.pct,
                "hop": hop.name,
                "outer": hops_reached[-1] if hops_reached else "this machine",
            }
            what, hint = (form.format(detail, **names) for form in (message.what, message.hint))
            raise message.error(what, hop=hop.name, hops_reached=hops_reached, hint=hint)


def _before(route: Route, hop: Hop) -> tuple[str, ...]:
    return tuple(other.name for other in route.hops[: route.hops.index(hop)])
