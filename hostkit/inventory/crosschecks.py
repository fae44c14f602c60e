"""What no single entry can know: who exists, who goes through whom, which two cannot be told apart.

These checks read the values as the file has them, before or after the models have had their say, so that one
misspelt key does not hide a loop elsewhere. Anything of the wrong kind is passed over: the models tell of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from hostkit.inventory.document import Document
from hostkit.inventory.faults import Fault, Path, shown
from hostkit.inventory.known import suggestion
from hostkit.inventory.values import regular_expression

_KINDS = ("address", "alias", "pct", "local")
_PROCESS = ("script", "module", "pidfile")
_OF_SSH = ("login", "user", "port", "identity", "ssh_config", "known_hosts")
_JSON_KEY = re.compile(r"[A-Za-z_][\w./-]*")
_PLACEHOLDERS = ("checkpoint", "out", "blocks")

Entries = dict[str, dict[str, Any]]


def cross_faults(document: Document) -> Iterator[Fault]:
    """Yield every fault between the entries of a document."""
    hosts, runs, evals = (_entries(document, group) for group in ("hosts", "runs", "evals"))
    for found in (
        _alike(hosts, "hosts"),
        _alike(runs, "runs"),
        _alike(evals, "evals"),
        _kinds(hosts),
        _routes(hosts),
        _same_container(hosts),
        _users(hosts),
        _runs(runs, hosts, document),
        _same_process(runs),
        _logs(runs),
        _evals(evals, runs, hosts, document),
        _idle_defaults(document),
        _reserved(document, evals),
    ):
        for path, what, instead in found:
            if not any(path[:length] in document.faulty for length in range(1, len(path) + 1)):
                yield Fault(document.line(path), path, what, instead)


def notes(document: Document) -> Iterator[Fault]:
    """Yield what is no fault, yet has no effect."""
    for name, host in _entries(document, "hosts").items():
        kind = next((kind for kind in ("pct", "local") if host.get(kind)), None)
        for key in _OF_SSH if kind else ():
            if key in host and host[key] != "forward":
                path = ("hosts", name, key)
                yield Fault(
                    document.line(path),
                    path,
                    f"{key} has no effect on a host with {kind}",
                    "it may be left out",
                )


Found = Iterator[tuple[Path, str, str]]


def _entries(document: Document, group: str) -> Entries:
    found = document.data.get(group) if isinstance(document.data, dict) else None
    return (
        {name: entry for name, entry in found.items() if isinstance(entry, dict)}
        if isinstance(found, dict)
        else {}
    )


def _alike(entries: Entries, group: str) -> Found:
    first: dict[str, str] = {}
    for name in entries:
        other = first.setdefault(name.lower(), name)
        if other != name:
            yield (group, name), f"differs from {shown(other)} only by case", "write two names that differ"


def _kinds(hosts: Entries) -> Found:
    for name, host in hosts.items():
        given = [kind for kind in _KINDS if kind in host]
        if not given and not _misspelt(host):
            instead = "write one of address (an ssh server), alias (your ssh config), pct (a container), local: true"
            yield ("hosts", name), "nothing says what this host is", instead
        elif len(given) > 1:
            instead = "write exactly one of " + ", ".join(_KINDS)
            yield ("hosts", name, given[1]), f"{' and '.join(given)} exclude each other", instead
        elif given == ["pct"] and "via" not in host:
            instead = "write via: and the host that runs Proxmox"
            yield ("hosts", name), "a container is entered on its Proxmox host, and via is missing", instead
        elif given == ["local"] and "via" in host:
            yield (
                ("hosts", name, "via"),
                "this machine has no via",
                "remove via or local",
            )


def _misspelt(host: dict[str, Any]) -> bool:
    """Does a key of this host, which the models refuse, mean what the host is?"""
    meant = {f"did you mean {kind}?" for kind in _KINDS}
    return any(key.split(":")[0] in _KINDS or suggestion(key, ("hosts", "")) in meant for key in host)


def _routes(hosts: Entries) -> Found:
    told: set[str] = set()
    for name, host in hosts.items():
        path: Path = ("hosts", name, "via")
        via = host.get("via")
        if not isinstance(via, str):
            continue
        if via not in hosts:
            yield path, f"there is no host {shown(via)}", _instead(via, hosts, "host")
            continue
        chain = _chain(name, hosts)
        if chain[-1] in chain[:-1]:
            loop = chain[chain.index(chain[-1]) :]
            if not told & set(loop):
                told |= set(loop)
                words = " -> ".join(loop)
                yield ("hosts", loop[0], "via"), f"a loop, {words}", "let one of them be reached directly"
        elif "pct" not in host and "local" not in host and host.get("login", "forward") == "forward":
            inner = next((hop for hop in chain[1:] if _ends_tunnel(hosts[hop], hosts)), None)
            if inner is not None:
                why = "is a container" if "pct" in hosts[inner] else "is itself reached by `login: there`"
                what = f"no tunnel can continue from {inner}, which {why}"
                yield path, what, "write login: there, so that ssh is run on it"


def _ends_tunnel(host: dict[str, Any], hosts: Entries) -> bool:
    """Is this host entered by a command, so that no forwarding goes on from it?"""
    outer = host.get("via")
    there = host.get("login") == "there" and isinstance(outer, str) and "local" not in hosts.get(outer, {})
    return "pct" in host or there


def _chain(name: str, hosts: Entries) -> list[str]:
    """Return name and the hosts it goes through, ending with a repeated one where that is a loop."""
    chain = [name]
    while isinstance(via := hosts[chain[-1]].get("via"), str) and via in hosts:
        chain.append(via)
        if via in chain[:-1]:
            break
    return chain


def _same_container(hosts: Entries) -> Found:
    first: dict[tuple[str, int], str] = {}
    for name, host in hosts.items():
        pct, via = host.get("pct"), host.get("via")
        if isinstance(pct, int) and isinstance(via, str):
            other = first.setdefault((via, pct), name)
            if other != name:
                yield (
                    ("hosts", name, "pct"),
                    f"container {pct} on {via} is {other} already",
                    "keep one of the two",
                )


def _users(hosts: Entries) -> Found:
    addresses = {str(host.get("address")) for host in hosts.values()} | set(hosts)
    for name, host in hosts.items():
        user = host.get("user")
        if isinstance(user, str) and "@" in user and user.rpartition("@")[2] in addresses:
            login, _, address = user.rpartition("@")
            yield (
                ("hosts", name, "user"),
                f"{shown(user)} names a host",
                f"write user: {login} (and address: {address})",
            )


def _runs(runs: Entries, hosts: Entries, document: Document) -> Found:
    for name, run in runs.items():
        yield from _exists(("runs", name, "host"), run.get("host"), hosts, "host", document)
        process = run.get("process")
        if isinstance(process, dict):
            given = [key for key in _PROCESS if key in process]
            if len(given) != 1:
                what = (
                    f"{' and '.join(given)} exclude each other"
                    if given
                    else "nothing says which process to look for"
                )
                yield ("runs", name, "process"), what, f"write exactly one of {', '.join(_PROCESS)}"
        saved = run.get("checkpoints")
        if isinstance(saved, dict) and "keep_every" in saved and "keep" not in saved:
            what = "keep_every needs keep"
            yield ("runs", name, "checkpoints", "keep_every"), what, "write keep: N beside it, or remove it"
        gpus = run.get("gpus")
        if isinstance(gpus, list):
            whole = [gpu if type(gpu) is int else None for gpu in gpus]  # true is equal to 1, and is no GPU
            for index, gpu in enumerate(whole):
                if gpu is not None and gpu in whole[:index]:
                    yield ("runs", name, "gpus", index), f"GPU {gpu} is listed twice", "keep one"


def _same_process(runs: Entries) -> Found:
    first: dict[str, str] = {}
    for name, run in runs.items():
        process = run.get("process")
        if not isinstance(process, dict) or "host" not in run:
            continue
        telling = {key: process[key] for key in (*_PROCESS, "args", "cwd") if key in process}
        if not set(telling) & set(_PROCESS):
            continue
        other = first.setdefault(repr((run["host"], sorted(telling.items()))), name)
        if other != name:
            what = f"the same process as run {other}: hostkit cannot tell them apart"
            yield ("runs", name, "process"), what, "add args or cwd that only one of them has"


def _logs(runs: Entries) -> Found:
    for name, run in runs.items():
        log = run.get("log")
        if not isinstance(log, dict):
            continue
        for key in ("step", "loss", "time"):
            text = log.get(key)
            if not isinstance(text, str) or not text:
                continue
            style = log.get("format", "auto")
            if style == "json" or (style == "auto" and _JSON_KEY.fullmatch(text)):
                continue
            try:
                regular_expression(text, groups=1)
            except ValueError as error:
                what, _, instead = str(error).partition("; ")
                yield ("runs", name, "log", key), what, instead


def _evals(evals: Entries, runs: Entries, hosts: Entries, document: Document) -> Found:
    for name, entry in evals.items():
        yield from _exists(("evals", name, "run"), entry.get("run"), runs, "run", document)
        yield from _exists(("evals", name, "host"), entry.get("host"), hosts, "host", document)
        harness = entry.get("harness", "dflash")
        if harness == "dflash" and "target" not in entry:
            instead = "write target: {model: /models/...}, the folder of the target on that host"
            yield ("evals", name), "the bundled harness needs the target, and target is missing", instead
        if isinstance(harness, dict):
            yield from _template(("evals", name, "harness", "command"), harness.get("command"))
        quick, full = entry.get("quick_blocks_per_prompt"), entry.get("blocks_per_prompt", 30)
        if isinstance(quick, int) and isinstance(full, int) and quick > full:
            path = ("evals", name, "quick_blocks_per_prompt")
            yield (
                path,
                f"{quick} is more than blocks_per_prompt, {full}",
                f"write {full} or less",
            )


def _template(path: Path, command: object) -> Found:
    command = command if isinstance(command, list) else []
    words = [word for word in command if isinstance(word, str)]
    used = [match for word in words for match in re.findall(r"\{(\w*)\}", word)]
    for index, word in enumerate(words):
        for unknown in re.findall(r"\{(\w*)\}", word):
            if unknown not in _PLACEHOLDERS:
                near = get_close_matches(unknown, _PLACEHOLDERS, 1)
                instead = f"write {{{near[0]}}}" if near else "known: {checkpoint} {out} {blocks}"
                yield (*path, index), f"{{{unknown}}} is not known", instead
    for needed in ("checkpoint", "out"):
        if words and len(words) == len(command) and needed not in used:
            yield (
                path,
                f"the command does not contain {{{needed}}}",
                f"write {{{needed}}} where the harness expects it",
            )


def _idle_defaults(document: Document) -> Found:
    for path in document.unused:
        what = "unused: nothing merges it"
        yield (
            path,
            what,
            "give it an anchor (&name) and write `<<: *name` in the entries that need it, or remove it",
        )


def _reserved(document: Document, evals: Entries) -> Found:
    """Refuse what the format has a place for and nothing would heed: empty, it may stand."""
    if isinstance(targets := document.data.get("notify"), list) and targets:
        yield (
            ("notify",),
            "not supported yet: hostkit sends no notifications",
            "remove it, or write notify: []",
        )
    for name, entry in evals.items():
        if isinstance(baselines := entry.get("baselines"), dict) and baselines:
            path = ("evals", name, "baselines")
            yield (
                path,
                "not supported yet: nothing is compared with baselines",
                "remove it, or write baselines: {}",
            )


def _exists(path: Path, name: object, known: Entries, kind: str, document: Document) -> Found:
    if isinstance(name, str) and name and name not in known and name not in _listed(document, f"{kind}s"):
        yield path, f"there is no {kind} {shown(name)}", _instead(name, known, kind)


def _listed(document: Document, group: str) -> dict[str, Any]:
    """Return a group with its faulty entries too: they exist, if only as faults."""
    found = document.data.get(group)
    return found if isinstance(found, dict) else {}


def _instead(name: str, known: Entries, kind: str) -> str:
    near = get_close_matches(name.lower(), [other.lower() for other in known], 1, 0.6)
    names = {other.lower(): other for other in known}
    if near:
        found = names[near[0]]
        return f"did you mean {found if found.isprintable() else shown(found)}?"
    told = [other if other.isprintable() else shown(other) for other in list(known)[:12]]
    return f"known {kind}s: {', '.join(told)}" if known else f"write it down under {kind}s first"
