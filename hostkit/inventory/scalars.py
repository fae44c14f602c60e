"""What an unquoted word of the file is: text, number, truth value, or something that YAML readers disagree on.

YAML 1.1 (which PyYAML reads) and 1.2 see different things in the same word, and neither sees what the writer
meant: `no` is false, `22:22` is 1342, `010` is 8, `3.10` is 3.1. Here there is one rule: a whole decimal number,
a decimal fraction, `true` and `false` are what they look like; every word that any YAML reader takes for
something other than text is refused, with what to write instead.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import yaml

from hostkit.inventory.faults import shown


@dataclass(frozen=True, slots=True)
class Surprise:
    """Why a word is refused, and what to write instead."""

    what: str
    instead: str


_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_FRACTION = re.compile(r"-?(0|[1-9][0-9]*)\.[0-9]+")
_TRUTH = {"true": True, "false": False}
_BOOLEANS = {"y": "true", "yes": "true", "on": "true", "true": "true"} | dict.fromkeys(
    ("n", "no", "off", "false"), "false"
)
_EMPTY = {"", "~", "null", "Null", "NULL"}
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+(\.[0-9_]*)?")
_BASED = re.compile(r"[-+]?0(?:o[0-7_]+|x[0-9a-f_]+|b[01_]+)", re.IGNORECASE)
_UNDERSCORED = re.compile(r"[-+]?[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?")
_SIXTIETHS = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")
_LOOSE_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_NUMBERS = (_SIXTIETHS, _BASED, _LEADING_ZERO, _UNDERSCORED, _LOOSE_NUMBER)
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|nan)", re.IGNORECASE)
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ].*)?")
_LONG = 64  # characters; a longer number is not worked out
_MAX_DIGITS = 18  # fits every reader's 64 bits


def plain(text: str) -> str | int | float | bool | Surprise:
    """Return the value of an unquoted word, or why it is none."""
    if text in _TRUTH:
        return _TRUTH[text]
    if _WHOLE.fullmatch(text):
        if len(text.lstrip("-")) > _MAX_DIGITS:
            return Surprise(
                f"{shown(text)} is too large a number", f"write {shown(text)} in quotes if it is text"
            )
        return int(text)
    if _FRACTION.fullmatch(text) and len(text) <= _MAX_DIGITS:
        return float(text)
    return _surprise(text) or text


def _surprise(text: str) -> Surprise | None:
    quoted = shown(text)
    if text in _EMPTY:
        return _nothing(text)
    if text.lower() in _BOOLEANS:
        truth = _BOOLEANS[text.lower()]
        return Surprise(
            f"{text} without quotes is the boolean {truth} in YAML",
            f"write {quoted} in quotes for text, or {truth} for the boolean",
        )
    if len(text) >= _LONG and any(pattern.fullmatch(text) for pattern in _NUMBERS):
        return Surprise(f"{quoted} is too large a number", f"write {quoted} in quotes if it is text")
    if _SIXTIETHS.fullmatch(text):
        return Surprise(
            f"{text} without quotes is a base-60 number in YAML ({_sixtieths(text)})",
            f"write one plain number for a port, a unit for a time (90s, 15m), or {quoted} in quotes for text",
        )
    if _BASED.fullmatch(text):
        return _number(text, "is octal, hexadecimal or binary", _decimal(text))
    if _LEADING_ZERO.fullmatch(text):
        digits = text.replace("_", "").lstrip("+-")
        octal = f", octal {int(digits, 8)}" if re.fullmatch(r"[0-7]+", digits) else ", text"
        return _number(
            text,
            f"with its leading zero is decimal to some readers{octal} to others",
            digits.lstrip("0") or "0",
        )
    if _UNDERSCORED.fullmatch(text):
        return _number(text, "is a number to some readers and text to others", text.replace("_", ""))
    if _NOT_FINITE.fullmatch(text):
        return Surprise(f"{text} is not a finite number", f"write {quoted} in quotes if it is text")
    if _LOOSE_NUMBER.fullmatch(text):
        return _number(text, "is a number to some readers and text to others", _decimal(text))
    if _DATE.fullmatch(text):
        return Surprise(f"{text} without quotes is a date in YAML", f"write {quoted} in quotes")
    if text in ("=", "<<"):
        return Surprise(f"{text} without quotes has a special meaning in YAML", f"write {quoted} in quotes")
    if text[0] in "“”„‘’«»`´" or text[-1] in "“”‘’»`´":
        return Surprise(f"{quoted} is in typographic quotes", "write plain quotes, \" or '")
    for tag, pattern in yaml.SafeLoader.yaml_implicit_resolvers.get(text[0], ()):  # what is left, such as 0._
        if pattern.match(text):
            return Surprise(
                f"{quoted} is {tag.rsplit(':')[-1]} to YAML, not text", f"write {quoted} in quotes"
            )
    return None


def _nothing(text: str) -> Surprise:
    if text == "~":
        return Surprise(
            "~ is YAML's empty value, not your home directory",
            "write the path in full, or ${HOME}/... in quotes",
        )
    if text:
        return Surprise(
            f"{text} is an empty value", f"write {shown(text)} in quotes for the word, or remove the key"
        )
    return Surprise("there is no value", "give it one, or remove the key")


def _number(text: str, what: str, decimal: str) -> Surprise:
    return Surprise(f"{text} {what}", f"write {decimal} for the number, or {shown(text)} in quotes for text")


def _sixtieths(text: str) -> str:
    whole, _, rest = text.lstrip("+-").replace("_", "").partition(".")
    value = 0
    for digits in whole.split(":")[:20]:
        value = value * 60 + int(digits[:_MAX_DIGITS])
    sign = "-" if text.startswith("-") else ""
    return f"{sign}{value}" + (f".{rest}" if rest else "")


def _decimal(text: str) -> str:
    try:
        value = int(text.replace("_", ""), 0) if _BASED.fullmatch(text) else float(text)
    except ValueError:  # 0x_ is a number to PyYAML, and no number
        return "it in full"
    if not math.isfinite(value) or abs(value) >= 1e18:
        return "it in full"
    return str(int(value)) if value == int(value) else repr(value)
