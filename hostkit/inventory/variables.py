"""`${NAME}` in a value: the environment variable of this machine, which must be set and not empty."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hostkit.inventory.faults import shown
from hostkit.inventory.scalars import Surprise

_REFERENCE = re.compile(r"\$\$(?=\{)|\$\{([^}]*)(\}?)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class Expanded(str):
    """Text that came out of the environment, so that a number may have been meant by it."""

    __slots__ = ()


def expand(text: str, environ: Mapping[str, str]) -> str | Surprise:
    """Return text with each `${NAME}` replaced, `$${` standing for `${`; or why it cannot be.

    Never half of it: one unset variable leaves no value at all, so that no path loses its beginning.
    """
    if "${" not in text:
        return text
    surprises: list[Surprise] = []

    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        found = _value(match[1], closed=bool(match[2]), environ=environ)
        if isinstance(found, Surprise):
            surprises.append(found)
            return ""
        return found

    expanded = _REFERENCE.sub(value, text)
    if surprises:
        return Surprise(
            "; ".join(dict.fromkeys(surprise.what for surprise in surprises)), surprises[0].instead
        )
    return Expanded(expanded)


def _value(name: str, *, closed: bool, environ: Mapping[str, str]) -> str | Surprise:
    if not closed or not _NAME.fullmatch(name):
        return Surprise(
            f"{shown('${' + name + ('}' if closed else ''))} is not a variable",
            "write ${NAME}, nothing more (no defaults, no blanks), or $${ for a literal ${",
        )
    value = environ.get(name)
    if value is None:
        return Surprise(f"variable {name} is not set", f"export {name}, or write the value in full")
    if not value.strip():
        return Surprise(f"variable {name} is set, but empty", f"give {name} a value, or write it in full")
    if _CONTROL.search(value):
        return Surprise(f"variable {name} holds control characters", f"fix {name}")
    if value.startswith("~"):
        return Surprise(
            f"variable {name} is {shown(value)}, and ~ is not expanded", f"set {name} to an absolute path"
        )
    return value
