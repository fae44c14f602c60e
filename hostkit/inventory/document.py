"""Strict YAML: a text becomes plain values of which each keeps its line, or a list of faults.

PyYAML's SafeLoader reads the syntax and nothing more: what a word is (`scalars`), which keys may stand twice
(none), how `<<` merges and how far aliases may multiply are decided here. Merge rule: a mapping's own keys win,
then the earlier mapping of a list; values are replaced whole, never merged into each other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from hostkit.inventory.faults import Fault, Path, shown
from hostkit.inventory.nodes import MAX_DEPTH, StrictLoader, TooMuchError, column_of, kind_of, line_of
from hostkit.inventory.scalars import Surprise, plain
from hostkit.inventory.syntax import explain
from hostkit.inventory.variables import expand

MAX_TEXT = 16_384  # characters in one value
MAX_VALUES = 40_000  # with every alias and merge written out

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


class Missing:
    """Stands for a value that had a fault of its own, so that nothing more is said about it."""

    def __repr__(self) -> str:
        return "<faulty>"


MISSING = Missing()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands: its line and column, its key's line, and, of a scalar, the words as written."""

    line: int
    column: int
    key_line: int
    raw: str | None = None
    quoted: bool = False


@dataclass(slots=True)
class Document:
    """The values of a file, the place of each, and the faults found on the way."""

    data: Any = MISSING
    places: dict[Path, Place] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    faulty: set[Path] = field(default_factory=set)  # paths whose key or value has a fault already
    unused: list[Path] = field(default_factory=list)  # entries of `defaults` that nothing merges

    def line(self, path: Path) -> int:
        """Return the line of the key at path, or of the nearest mapping around it that is written down."""
        while path and path not in self.places:
            path = path[:-1]
        place = self.places.get(path)
        return place.key_line if place else 1


def parse(text: str, environ: Mapping[str, str] | None = None) -> Document:
    """Return the document of a YAML text; variables come from `environ`, by default this process's."""
    document = Document()
    loader: StrictLoader | None = None
    try:
        loader = StrictLoader(text)
        root = loader.get_single_node()
        if root is None:
            document.faults.append(Fault(1, (), "the file holds no values", "copy the example"))
        elif not isinstance(root, MappingNode):
            what = f"the file is {kind_of(root)}, not a mapping"
            document.faults.append(Fault(line_of(root), (), what, "begin with `hostkit: 1`"))
        else:
            _Conversion(document, loader.tags, os.environ if environ is None else environ).convert(root)
    except TooMuchError as error:
        document.faults.append(error.fault)
        document.data = MISSING
    except yaml.YAMLError as error:
        document.faults.append(explain(error, text))
    except (
        ValueError,
        OverflowError,
        RecursionError,
    ) as error:  # PyYAML's own slips: "\UFFFFFFFF", %YAML 1.9…9
        what = f"not readable as YAML ({type(error).__name__})"
        line = loader.line + 1 if loader is not None else 1
        document.faults.append(Fault(line, (), what, "look for an escape like \\U that is no character"))
    return document


class _Conversion:
    """Nodes to values. Aliases are written out, each counted, so that a bomb ends early."""

    def __init__(self, document: Document, tags: dict[int, str], environ: Mapping[str, str]) -> None:
        self.document = document
        self.tags = tags
        self.environ = environ
        self.count = 0
        self.open: list[Node] = []
        self.visits: dict[int, int] = {}

    def convert(self, root: MappingNode) -> None:
        self.document.data = self.value(root, (), line_of(root))
        self.document.unused = list(self._unused(root))

    def value(self, node: Node, path: Path, key_line: int) -> Any:
        self._step(node)
        if id(node) in self.tags:
            self.document.places[path] = Place(line_of(node), column_of(node), key_line)
            return self._tagged(node, path)
        if isinstance(node, ScalarNode):
            return self._scalar(node, path, key_line)
        self.document.places[path] = Place(line_of(node), column_of(node), key_line)
        if (word := _placeholder(node)) is not None:
            what = f"{{{word}}} without quotes is a mapping to YAML"
            return self._fault(node, path, what, f'write "{{{word}}}" in quotes')
        if any(node is outer for outer in self.open):
            return self._fault(
                node, path, "this alias stands inside its own anchor", "write the value in full"
            )
        self.open.append(node)
        try:
            if isinstance(node, MappingNode):
                return self._mapping(node, path)
            return [self.value(item, (*path, index), line_of(item)) for index, item in enumerate(node.value)]
        finally:
            self.open.pop()

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        pairs: dict[str, tuple[Node, Node]] = {}
        self._collect(node, path, pairs)
        return {
            key: self.value(value_node, (*path, key), line_of(key_node))
            for key, (key_node, value_node) in pairs.items()
        }

    def _collect(self, node: MappingNode, path: Path, pairs: dict[str, tuple[Node, Node]]) -> None:
        """Add a mapping's pairs, its own before those it merges; what is there already stays."""
        written: dict[str, int] = {}
        merges: list[tuple[Node, Node]] = []
        for key_node, value_node in node.value:
            self._step(key_node)
            if isinstance(key_node, ScalarNode) and key_node.value == "<<" and key_node.style is None:
                merges.append((key_node, value_node))
                continue
            key = self._key(key_node, value_node, path)
            if key is None:
                continue
            if key in written:
                what = f"key {shown(key)} is a duplicate, first on line {written[key]}"
                self._fault(key_node, (*path, key), what, "keep one", keep=True)
                continue
            written[key] = line_of(key_node)
            if key not in pairs:
                pairs[key] = (key_node, value_node)
        if len(merges) > 1:
            what = f"<< is a duplicate, first on line {line_of(merges[0][0])}"
            self._fault(
                merges[1][0],
                (*path, "<<"),
                what,
                "write one, `<<: [*first, *second]`; the first of them wins",
            )
        for _, value_node in merges[:1]:
            self._merge(value_node, path, pairs)

    def _merge(self, node: Node, path: Path, pairs: dict[str, tuple[Node, Node]]) -> None:
        sources = node.value if isinstance(node, SequenceNode) else [node]
        for source in sources:
            self._step(source)
            if id(source) in self.tags:
                self._tagged(source, (*path, "<<"))
            elif not isinstance(source, MappingNode):
                what = f"<< merges mappings, and this is {kind_of(source)}"
                self._fault(source, (*path, "<<"), what, "write `<<: *anchor` of a mapping")
            elif any(source is outer for outer in self.open):
                what = "this << merges a mapping into itself"
                self._fault(source, (*path, "<<"), what, "remove the <<")
            else:
                self.open.append(source)
                self._collect(source, path, pairs)
                self.open.pop()

    def _key(self, node: Node, value: Node, path: Path) -> str | None:
        """Return the key as text: also a faulty one, so that what stands below it is looked at as well."""
        if not isinstance(node, ScalarNode):
            what = f"a key is {kind_of(node)}"
            self._fault(node, path, what, "put a text with { } or [ ] in quotes", keep=True)
            return None
        text: str = node.value
        faulty = (*path, text)
        if id(node) in self.tags:
            self._tagged(node, faulty, keep=True)
            return text
        if node.style is not None:
            if _CONTROL.search(text) or not text:
                self._fault(node, faulty, f"{shown(text)} is not a name", "write a word", keep=True)
            return text
        if "${" in text:
            self._fault(
                node, faulty, f"a variable in a key, {shown(text)}", "write the name in full", keep=True
            )
            return text
        if isinstance(value, ScalarNode) and not value.value and value.style is None and ":" in text:
            head, _, tail = text.partition(":")
            what = f"{shown(text)} has no blank after its colon"
            self._fault(node, faulty, what, f"write {shown(head)[1:-1]}: {shown(tail)[1:-1]}")
            self.document.faulty.add((*faulty, "[key]"))
            return text
        kind = plain(text)
        if isinstance(kind, Surprise):
            instead = kind.instead if text[:1].isalpha() else "begin a name with a letter"
            self._fault(node, faulty, kind.what, instead, keep=True)
        elif not isinstance(kind, str):
            sort = "a boolean" if isinstance(kind, bool) else "a number"
            what = f"the key {shown(text)} is {sort}, and a key is a word"
            self._fault(node, faulty, what, "begin a name with a letter", keep=True)
        elif "\n" in text or node.end_mark.line != node.start_mark.line:
            self._fault(node, faulty, "a key over several lines", "write it on one", keep=True)
        return text

    def _scalar(self, node: ScalarNode, path: Path, key_line: int) -> Any:
        text: str = node.value
        self.document.places[path] = Place(
            line_of(node), column_of(node), key_line, text, node.style is not None
        )
        if path in self.document.faulty:
            return MISSING
        self.count += len(text) // 64  # a long text behind many aliases is a bomb as well
        if len(text) > MAX_TEXT:
            return self._fault(node, path, f"a text of more than {MAX_TEXT} characters", "is a quote open?")
        if _CONTROL.search(text):
            return self._fault(node, path, f"control characters in {shown(text)}", "remove them")
        expanded = expand(text, self.environ)
        if isinstance(expanded, Surprise):
            return self._fault(node, path, expanded.what, expanded.instead)
        if expanded is not text or node.style is not None:
            return expanded
        if node.end_mark.line != node.start_mark.line:
            what = f"{shown(text)} runs over several lines"
            return self._fault(node, path, what, "put it in quotes, or was a `- ` or a `: ` meant?")
        value = plain(text)
        if isinstance(value, Surprise):
            return self._fault(node, path, value.what, value.instead, line=key_line if not text else None)
        return value

    def _fault(
        self, node: Node, path: Path, what: str, instead: str, *, keep: bool = False, line: int | None = None
    ) -> Missing:
        """Record a fault. `keep`: the fault is the key's, and the value under it is still worth looking at."""
        self.document.faults.append(Fault(line or line_of(node), path, what, instead, column_of(node)))
        self.document.faulty.add((*path, "[key]") if keep else path)
        return MISSING

    def _tagged(self, node: Node, path: Path, *, keep: bool = False) -> Missing:
        tag = self.tags[id(node)].replace("tag:yaml.org,2002:", "!!")
        return self._fault(
            node, path, f"a tag, {shown(tag)}", "write the value alone, a text in quotes", keep=keep
        )

    def _step(self, node: Node) -> None:
        self.count += 1
        self.visits[id(node)] = self.visits.get(id(node), 0) + 1
        if self.count > MAX_VALUES:
            what = f"aliases and merges make more than {MAX_VALUES} values of this file"
            raise TooMuchError(line_of(node), what, "write them in full where they are needed")
        if len(self.open) > MAX_DEPTH:
            raise TooMuchError(line_of(node), f"nested deeper than {MAX_DEPTH} levels", "nest less deeply")

    def _unused(self, root: MappingNode) -> Iterator[Path]:
        """Yield the entries of the top-level `defaults` that no alias reaches."""
        for key_node, value_node in root.value:
            if key_node.value != "defaults" or not isinstance(value_node, MappingNode):
                continue
            if self.visits.get(id(value_node), 0) > 1:
                return
            for inner_key, inner in value_node.value:
                if not self._reached(inner):
                    yield ("defaults", str(inner_key.value))

    def _reached(self, node: Node) -> bool:
        if self.visits.get(id(node), 0) > 1:
            return True
        if isinstance(node, MappingNode):
            return any(self._reached(inner) for _, inner in node.value)
        return isinstance(node, SequenceNode) and any(self._reached(inner) for inner in node.value)


def _placeholder(node: Node) -> str | None:
    """Return the word of `{word}`, which is a mapping of it to nothing."""
    if isinstance(node, MappingNode) and node.flow_style and len(node.value) == 1:
        key, value = node.value[0]
        lone = isinstance(key, ScalarNode) and isinstance(value, ScalarNode)
        if lone and value.style is None and not value.value and re.fullmatch(r"\w+", key.value):
            return str(key.value)
    return None
