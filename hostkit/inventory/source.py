"""The bytes of an inventory file as text, or every reason why they are not fit to be read as YAML."""

from __future__ import annotations

import os
import stat
import unicodedata
from pathlib import Path

from hostkit.errors import ConfigError
from hostkit.inventory.faults import Fault

MAX_BYTES = 128 * 1024  # bytes; five hundred hosts take a third of it, and reading never takes a second

_MARKS = (  # the longer ones first: the mark of UTF-16 begins that of UTF-32
    (b"\xef\xbb\xbf", "a byte-order mark", "save it as UTF-8 without BOM"),
    (b"\xff\xfe\x00\x00", "a byte-order mark of UTF-32", "save it as UTF-8 without BOM"),
    (b"\x00\x00\xfe\xff", "a byte-order mark of UTF-32", "save it as UTF-8 without BOM"),
    (b"\xff\xfe", "a byte-order mark of UTF-16", "save it as UTF-8 without BOM"),
    (b"\xfe\xff", "a byte-order mark of UTF-16", "save it as UTF-8 without BOM"),
)
_LINE_ENDS = {"\r": "a lone carriage return", "\x85": "U+0085", "\u2028": "U+2028", "\u2029": "U+2029"}


def read(file: Path) -> bytes:
    """Return the bytes of a regular file of reasonable size. Raises ConfigError."""
    try:
        # Not blocking: a pipe or a device named by mistake must not hang the command.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ConfigError(
                    "the inventory is not a regular file", where=str(file), hint="name a YAML file"
                )
            content = opened.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"the inventory cannot be read: {reason}", where=str(file)) from error
    if len(content) > MAX_BYTES:
        raise ConfigError(
            f"the inventory is larger than {MAX_BYTES // 1024} KiB",
            where=str(file),
            hint="is it the right file?",
        )
    return content


def decode(content: bytes) -> tuple[str, list[Fault]]:
    """Return the text of a file, or what is wrong with its bytes; where there are faults the text is no good."""
    for mark, what, instead in _MARKS:
        if content.startswith(mark):
            return "", [Fault(1, (), f"the file begins with {what}", instead)]
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return "", [
            Fault(line, (), f"byte 0x{content[error.start]:02x} is not UTF-8", "save the file as UTF-8")
        ]
    if not text.strip():
        return "", [Fault(1, (), "the file is empty", "copy the example, inventory/fleet.yaml of hostkit")]
    return text, _characters(text)


def _characters(text: str) -> list[Fault]:
    """Return a fault for each line with a character that is invisible and that YAML refuses."""
    faults = []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        comment = line.lstrip(" ").startswith("#")
        indent = line[: len(line) - len(line.lstrip(" \t"))]
        if "\t" in indent and line.strip() and not comment:
            faults.append(Fault(number, (), "a tab in the indentation", "indent with spaces"))
        for character in line:
            if character.isascii() and (character.isprintable() or character == "\t"):
                continue
            if character in _LINE_ENDS:
                what = f"{_LINE_ENDS[character]} ends a line to YAML and to no editor"
                faults.append(Fault(number, (), what, "end lines with a newline"))
                break
            if unicodedata.category(character) in _UNSEEN and not (comment and character > "\x9f"):
                name = unicodedata.name(character, "a control character").lower()
                what = f"an invisible character, U+{ord(character):04X} ({name})"
                faults.append(Fault(number, (), what, "write a space, or nothing"))
                break
    return faults


_UNSEEN = {"Cc", "Cf", "Cs", "Cn", "Co", "Zs", "Zl", "Zp"}
