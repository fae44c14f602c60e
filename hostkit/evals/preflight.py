"""Before anything long: is the harness there and the same, and is all there that it needs? One list of what is not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hostkit.errors import ConfigError, DataError, RefusedError
from hostkit.evals.harness import INSTALLED, Harness, drift
from hostkit.evals.request import WorkspacePaths
from hostkit.formatting import size
from hostkit.inventory.models import Eval, Host
from hostkit.jobs import install_files
from hostkit.transport.base import Transport

BUDGET = 120.0  # seconds; it reads config files and headers, and asks the API once


@dataclass(frozen=True)
class HarnessFound:
    """The files to install, those beside them that are not ours but could be imported by them, and words for it."""

    wanted: tuple[str, ...]
    others: tuple[str, ...]
    words: str


def compare_harness(
    transport: Transport, host: Host, harness: Harness, folder: str, *, update: bool
) -> HarnessFound:
    """Hold the host's harness against ours.

    Missing ones and those of an older hostkit are installed; files that were changed there are refused, or
    replaced where `update` asks for it. Writes nothing.
    """
    found = drift(transport, host.python, harness, folder)
    where = f"{transport.host}:{folder}"
    if found.unreadable:
        raise DataError(
            "cannot be read: " + ", ".join(found.unreadable),
            where=where,
            hint="its files must be readable for the account that hostkit logs in as",
        )
    if found.changed and not update:
        raise RefusedError(
            f"the harness there is not ours: {', '.join(found.changed)} differ",
            rule="harness-drift",
            where=where,
            hint="--show-drift prints the difference, --update-harness replaces them",
        )
    total = len(harness.names)
    wanted = (*found.missing, *found.outdated, *(found.changed if update else ()))
    words = f"{total - len(wanted)} of {total} files equal"
    return HarnessFound(wanted, found.others, f"{words}, {len(wanted)} to install" if wanted else words)


def install_harness(
    transport: Transport, host: Host, harness: Harness, folder: str, wanted: tuple[str, ...]
) -> None:
    """Bring these files of the harness there, with the manifest by which an edit can be told from age."""
    files = {name: harness.files[name] for name in wanted} | {INSTALLED: harness.manifest}
    install_files(transport, host, files, folder)


@dataclass(frozen=True)
class Preflight:
    """What the payload says that it needs and finds; bytes."""

    document: dict[str, Any]

    @property
    def peak_bytes(self) -> int:
        return int(self.document["memory"]["peak_bytes"])

    @property
    def disk_bytes(self) -> int:
        return int(self.document["disk"]["needed_bytes"])

    @property
    def words(self) -> str:
        references = self.document.get("references") or {}
        cached, of = references.get("cached"), references.get("of")
        return f"nothing missing; peak memory {size(self.peak_bytes)}, references and features cached: {cached} of {of}"


def preflight(
    transport: Transport, evaluation: Eval, flags: list[str], drafter_config: dict[str, Any]
) -> Preflight:
    """Run the payload's preflight on the evaluation host, for a checkpoint that is still to be brought there.

    Raises ConfigError with everything that is missing.
    """
    script = f"{WorkspacePaths(evaluation.workspace).harness}/preflight.py"
    # -B: also a dry run runs it, and leaves nothing behind
    argv = [evaluation.python, "-B", script, "--drafter-config", "-", *flags]
    done = transport.run(argv, stdin=json.dumps(drafter_config).encode(), timeout=BUDGET)
    where = f"{transport.host}:{evaluation.python}"
    if done.exit in (126, 127):
        raise ConfigError(
            "preflight: 1 thing is missing",
            faults=(f"{evaluation.python}: not found or not executable; set `python:` of the evaluation",),
            where=where,
        )
    try:
        document = json.loads(done.stdout)
        missing = [(item["what"], item["why"], item["try"]) for item in document["missing"]]
        if not missing:
            int(document["memory"]["peak_bytes"]), int(document["disk"]["needed_bytes"])
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        said = done.stderr.decode("utf-8", "replace").strip()[-300:]
        raise DataError(
            f"preflight gave no answer (exit {done.exit}): {said}",
            where=where,
            hint=f"run it there by hand: {evaluation.python} {script} --help",
        ) from error
    limit = evaluation.limits.memory
    if not missing and limit is not None and limit < int(document["memory"]["peak_bytes"]):
        peak = int(document["memory"]["peak_bytes"])
        missing.append(
            (
                "memory",
                f"limits.memory is {size(limit)}, and it will take {size(peak)} at its peak",
                "raise the limit in the inventory, or take it out",
            )
        )
    if missing:
        raise ConfigError(
            f"preflight: {len(missing)} {'thing is' if len(missing) == 1 else 'things are'} missing",
            faults=tuple(f"{what}: {why}; {hint}" for what, why, hint in missing),
            where=where,
        )
    return Preflight(document)
