"""Text from elsewhere, sanitized: nothing in it moves a cursor, hides a word or turns the reading direction.

The one place that does it. Names of files, argvs, logs and errors of hosts are data, and whoever can write
one of them must not be able to write on the screen of the person who looks.
"""

from __future__ import annotations

import re

# CSI and OSC sequences and what is cut of them, parameters too; an OSC never swallows more than its line
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?|(?:\x1b[\]PX^_]|\x9d)[^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?"
)
_DIRECTIONS = r"\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
_CONTROLS = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_DIRECTIONS}]")
_CONTROLS_BUT_RETURNS = re.compile(rf"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f{_DIRECTIONS}]")


def sanitize(text: str) -> str:
    """Return text as it may be shown: newlines and tabs stay, every other control character is U+FFFD."""
    return _CONTROLS.sub("\ufffd", _ESCAPES.sub("", text))


def clean(text: str) -> str:
    """Return text as it may be read: control characters are gone; newlines, tabs and carriage returns stay."""
    return _CONTROLS_BUT_RETURNS.sub("", _ESCAPES.sub("", text))


def one_line(text: str) -> str:
    """Return text as one line: what a host says (an argv, a path) ends up inside hostkit's own sentences."""
    return re.sub(r"[\n\r\t]+", " ", clean(text))
