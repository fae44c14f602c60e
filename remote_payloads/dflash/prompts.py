"""Evaluation prompts: any JSONL file whose lines have an id, a domain, and a prompt, messages or plain text;
or prompt_ids and response_ids: a reference that is given (sampled, or real text), not the target's own.

Standard library only, Python 3.8: the preflight reads them too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from refusal import Refused

BUNDLED = Path(__file__).resolve().parent / "prompts.jsonl"


class Prompt(NamedTuple):
    """A conversation to answer, plain `text` to continue (no template), or a given reference as token ids."""

    id: str
    domain: str
    messages: Optional[List[Dict[str, str]]]
    text: Optional[str]
    given: Optional[Tuple[List[int], List[int]]] = None

    def content(self) -> Any:
        """What the reference depends on."""
        if self.given is not None:
            return list(self.given)
        return self.messages if self.messages is not None else self.text


def read(file: Path) -> List[Prompt]:
    """All prompts of a file; `Refused` names the line that is wrong."""
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise Refused("{}: no such prompts file".format(file)) from None
    found = []  # type: List[Prompt]
    for number, line in enumerate(lines, 1):
        if line.strip():
            found.append(_parse(line, "{}:{}".format(file, number), number))
    ids = [prompt.id for prompt in found]
    double = sorted({i for i in ids if ids.count(i) > 1})
    if double:
        raise Refused("{}: id {!r} is used twice".format(file, double[0]))
    if not found:
        raise Refused("{}: holds no prompt".format(file))
    return found


def choose(prompts: List[Prompt], at_most: Optional[int]) -> List[Prompt]:
    """The first N, taking turns over the domains: a small sample covers them all and lies in every larger one."""
    if not at_most or at_most >= len(prompts):
        return prompts
    turn = {}  # type: Dict[str, int]
    order = []
    for place, prompt in enumerate(prompts):
        order.append((turn.get(prompt.domain, 0), place))
        turn[prompt.domain] = turn.get(prompt.domain, 0) + 1
    return [prompts[place] for _, place in sorted(order)[:at_most]]


def _parse(line: str, where: str, number: int) -> Prompt:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise Refused("{}: not JSON: {}".format(where, error)) from None
    if not isinstance(entry, dict):
        raise Refused("{}: not a JSON object".format(where))
    messages, text = entry.get("messages"), entry.get("text")
    if messages is None and "prompt" in entry:
        messages = [{"role": "user", "content": entry["prompt"]}]
    given = _given(entry, where)
    if sum(kind is not None for kind in (messages, text, given)) != 1:
        raise Refused("{}: needs one of prompt, messages, text, or prompt_ids and response_ids".format(where))
    return Prompt(str(entry.get("id", number)), str(entry.get("domain", "unstated")), messages, text, given)


def _given(entry: Dict[str, Any], where: str) -> Optional[Tuple[List[int], List[int]]]:
    lists = entry.get("prompt_ids"), entry.get("response_ids")
    if lists == (None, None):
        return None
    if not all(isinstance(ids, list) and ids and all(type(i) is int for i in ids) for ids in lists):
        raise Refused("{}: prompt_ids and response_ids must both be lists of token ids".format(where))
    return lists[0], lists[1]  # type: ignore[return-value]
