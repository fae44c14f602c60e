"""What commands did on hosts, one JSON line each, with secrets masked (`<state>/journal.jsonl`, 0600)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hostkit.directories import state_directory
from hostkit.errors import CannotCreateError
from hostkit.strictjson import finite

MASK = "***"

_STRONG = (
    r"pass(?:word|wd|phrase|code)|secret(?:[-_]?(?:access[-_]?)?key)?|token|(?:api|access|private|session)[-_]?key|"
    r"authorization|credentials?|cookie"
)
_BY_KEY = re.compile(
    rf"(?:{_STRONG}|secrets|tokens|cookies|api[-_]?keys|auth|bearer|webhook|[-_]pwd)$", re.IGNORECASE
)
_COUNTS = re.compile(
    r"(?:^|[-_.])(?:max|num|new|total|n|per|of|draft)(?:[-_]\w+)*[-_]tokens?$", re.IGNORECASE
)
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S),
        MASK,
    ),
    (
        re.compile(r"(?P<keep>\b[a-z][a-z0-9+.-]*://[^\s/@:]*:)[^\s/@]+(?=@)", re.IGNORECASE),
        rf"\g<keep>{MASK}",
    ),
    (re.compile(r"(?P<keep>\b(?:Bearer|Basic)\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE), rf"\g<keep>{MASK}"),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?"), MASK),
    (re.compile(r"\b(?:sk|pk|rk)[-_](?:[A-Za-z0-9]+[-_])*[A-Za-z0-9]{16,}"), MASK),
    (
        re.compile(
            r"\b(?:gh[pousr]_|github_pat_|glpat-|hf_|npm_|pypi-|xox[abeprs]-|wandb_v1_)[A-Za-z0-9_-]{10,}"
        ),
        MASK,
    ),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), MASK),
    (re.compile(r"\bAIza[A-Za-z0-9_-]{30,}"), MASK),
    (re.compile(r"(?P<keep>hooks\.slack\.com/services/)\S+"), rf"\g<keep>{MASK}"),
    (
        re.compile(
            rf"(?P<keep>(?:{_STRONG})[\"']?\s*[=:]\s*[\"']?)(?!{re.escape(MASK)})[^\s\"'&,;]+", re.IGNORECASE
        ),
        rf"\g<keep>{MASK}",
    ),
)


def masked(value: Any, key: str | None = None) -> Any:
    """Return `value` (JSON data) with everything replaced that is secret by its key or by its shape.

    In an argv the word after `--password` is secret too; keys such as `max_new_tokens` are not secret.
    """
    if key is not None and _is_secret(key) and not isinstance(value, Mapping | bool | None):
        return value if isinstance(value, int | float) and key.lower().endswith("tokens") else MASK
    if isinstance(value, str):
        return _masked_text(value)
    if isinstance(value, Mapping):
        return {str(k): masked(v, str(k)) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return _masked_words(list(value))
    return value


def _is_secret(key: str) -> bool:
    return bool(_BY_KEY.search(key)) and not _COUNTS.search(key)


def _masked_text(text: str) -> str:
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def _masked_words(words: list[Any]) -> list[Any]:
    result: list[Any] = []
    for index, word in enumerate(words):
        before = words[index - 1] if index else None
        flag = before if isinstance(before, str) and before.startswith("-") and "=" not in before else None
        result.append(
            MASK if flag and isinstance(word, str) and _is_secret(flag.lstrip("-")) else masked(word)
        )
    return result


class Journal:
    """An append-only file of what was done; a line is one write, so that lines of two commands never mix."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path if path is not None else state_directory() / "journal.jsonl"

    def record(self, event: str, *, host: str | None = None, **fields: Any) -> dict[str, Any]:
        """Append one line, and return what was written: time (UTC), event, host, own pid, fields."""
        line: dict[str, Any] = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event}
        line |= {"host": host} if host is not None else {}
        line |= {"by": os.getpid()} | masked(fields)
        data = (
            json.dumps(finite(line), ensure_ascii=True, default=str, separators=(",", ":")).encode() + b"\n"
        )
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.fchmod(descriptor, 0o600)
                written = os.write(descriptor, data)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise CannotCreateError(
                f"cannot write the journal: {error.strerror}",
                where=str(self.path),
                hint="free some space, or set XDG_STATE_HOME to a folder that is writable",
            ) from error
        if written != len(data):
            raise CannotCreateError(
                "the journal took only part of a line", where=str(self.path), hint="free some space"
            )
        return line

    def read(self, limit: int = 1000) -> list[dict[str, Any]]:
        """Return the last `limit` whole lines; a line cut by a full disk or a crash is left out."""
        try:
            lines = self.path.read_bytes().splitlines()[-limit:]
        except FileNotFoundError:
            return []
        found: list[dict[str, Any]] = []
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                found.append(entry)
        return found
