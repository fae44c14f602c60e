"""PyYAML's syntax errors in the words of somebody who has to fix the file."""

from __future__ import annotations

import yaml

from hostkit.inventory.faults import Fault, shown

_HINTS = (  # in PyYAML's text -> what to do; the first that fits
    ("expected a single document", "keep one document: remove the `---`"),
    ("mapping values are not allowed here", "is the indentation right? put a text that holds `: ` in quotes"),
    ("found unknown escape character", "write a regular expression in single quotes"),
    ("expected escape sequence", "write a regular expression in single quotes"),
    ("found character '\\t'", "write spaces instead of tabs"),
    ("that cannot start any token", "put a text that begins with this character in quotes"),
    ("found undefined alias", "put a text that begins with * in quotes, or define the anchor above"),
    ("while scanning an alias", "put a text that begins with * in quotes"),
    ("while scanning an anchor", "put a text that begins with & in quotes"),
    ("found duplicate anchor", "give each anchor a name of its own"),
    ("found unexpected end of stream", "close the quote"),
    ("found unexpected document separator", "close the quote"),
    ("expected ',' or '}'", "close the brace; within { } put a text with ${...}, {...} or a comma in quotes"),
    (
        "expected ',' or ']'",
        "close the bracket; within [ ] put a text with ${...}, {...} or a comma in quotes",
    ),
    ("could not find expected ':'", "write `key: value`, or is the line before it not closed?"),
    ("expected <block end>", "align it with the lines above"),
    ("block sequence entries are not allowed here", "is the indentation right?"),
    ("expected the node content", "is a value missing?"),
)


def explain(error: yaml.YAMLError, text: str) -> Fault:
    """Return the fault that a syntax error of PyYAML is."""
    if not isinstance(error, yaml.MarkedYAMLError):
        position = error.position if isinstance(error, yaml.reader.ReaderError) else 0
        return Fault(
            text.count("\n", 0, position) + 1, (), "a character that YAML does not allow", "remove it"
        )
    mark = error.problem_mark or error.context_mark
    said = f"{error.context or ''} {error.problem or ''}"
    line = mark.line + 1 if mark else 1
    lines = text.splitlines()
    if "found unexpected end of stream" in said and error.context_mark:
        line = error.context_mark.line + 1  # where the quote was opened, not where the file ends
    problem = error.problem or error.context or ""
    what = f"YAML: {error.context} {problem}" if problem.startswith("but ") else f"YAML: {problem}"
    written = lines[line - 1].strip() if line <= len(lines) else ""
    hint = next((hint for part, hint in _HINTS if part in said), "check this line and the one before")
    if "found a tab" in said or ("\t" in written and "token" in said):
        hint = "write spaces instead of tabs"
    if written:
        what += f" near {shown(written)}"
    return Fault(line, (), "".join(c if c.isprintable() else "?" for c in what), hint)
