"""YAML text to nodes, by PyYAML's SafeLoader under limits: nothing is constructed, and nothing runs away."""

from __future__ import annotations

from typing import Any

import yaml
from yaml.events import AliasEvent
from yaml.nodes import MappingNode, Node, SequenceNode

from hostkit.inventory.faults import Fault, shown

MAX_DEPTH = 24  # levels; the format needs eight
MOST_NODES = 12_000  # as written


class TooMuchError(Exception):
    """The file, or what its aliases make of it, is beyond all use."""

    def __init__(self, line: int, what: str, instead: str) -> None:
        super().__init__(what)
        self.fault = Fault(line, (), what, instead)


class StrictLoader(yaml.SafeLoader):
    """SafeLoader that counts while it composes, and notes explicit tags. It constructs nothing."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.nodes = 0
        self.depth = 0
        self.tags: dict[int, str] = {}  # of the nodes that bear an explicit one

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        line = event.start_mark.line + 1
        self.nodes += 1
        self.depth += 1
        if self.nodes > MOST_NODES:
            raise TooMuchError(line, f"more than {MOST_NODES} values", "is this the right file?")
        if self.depth > MAX_DEPTH:
            raise TooMuchError(line, f"nested deeper than {MAX_DEPTH} levels", "is a bracket open?")
        node = super().compose_node(parent, index)
        self.depth -= 1
        if node is not None and not isinstance(event, AliasEvent) and getattr(event, "tag", None) is not None:
            self.tags[id(node)] = event.tag
        return node


def line_of(node: Node) -> int:
    return int(node.start_mark.line) + 1


def column_of(node: Node) -> int:
    return int(node.start_mark.column) + 1


def kind_of(node: Node) -> str:
    if isinstance(node, MappingNode):
        return "a mapping"
    if isinstance(node, SequenceNode):
        return "a list"
    return f"the word {shown(node.value)}" if node.value else "nothing"
