"""What the user's own OpenSSH makes of an alias: one call of `ssh -G`, and a pure reading of its output."""

from __future__ import annotations

import subprocess

from hostkit.errors import ConfigError

BUDGET = 10.0  # seconds; a `Match exec` of the user's may look something up


def resolve_alias(alias: str, ssh_config: str | None = None) -> dict[str, list[str]]:
    """Return the options that ssh would use for `alias`: lower-case keyword -> its values, in order.

    Include, Match, ProxyJump, IdentityFile are resolved by OpenSSH itself; no host is contacted. `ssh_config`
    is used instead of the user's files (-F). Raises ConfigError.
    """
    if not alias or alias.startswith("-"):
        raise ConfigError(f"{alias!r} is no alias", hint="write a Host of your ssh config")
    argv = ["ssh", *(("-F", ssh_config) if ssh_config else ()), "-G", "--", alias]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=BUDGET, check=False, errors="replace"
        )
    except FileNotFoundError as error:
        raise ConfigError(
            "OpenSSH's ssh is not on this machine",
            where=f"alias {alias}",
            hint="install openssh-client, or write address:",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise ConfigError(
            f"ssh -G did not answer in {BUDGET:g} s",
            where=f"alias {alias}",
            hint="look at `Match exec` in your ssh config",
        ) from error
    options = parse_options(done.stdout)
    if done.returncode != 0 or not options.get("hostname"):
        said = done.stderr.strip().splitlines()
        raise ConfigError(
            f"ssh -G failed: {said[-1] if said else f'exit {done.returncode}'}",
            where=f"alias {alias}",
            hint=f"try: {' '.join(argv)}",
        )
    return options


def parse_options(text: str) -> dict[str, list[str]]:
    """Return keyword -> values of what `ssh -G` printed; a keyword that stands alone has one empty value."""
    options: dict[str, list[str]] = {}
    for line in text.splitlines():
        keyword, _, value = line.strip().partition(" ")
        if keyword:
            options.setdefault(keyword.lower(), []).append(value.strip())
    return options
