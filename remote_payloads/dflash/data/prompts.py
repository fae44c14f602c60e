"""Evaluation prompts: any JSONL file whose lines have an id, a domain, and a prompt, messages or plain text;
or prompt_ids and response_ids: a reference that is given (sampled, or real text), not the target's own.

Standard library only, Python 3.8: the preflight reads them too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from dflash.errors import Refused

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
    found = []  # type: List[Prompt]
    for number, line in lines_of(file):
        found.append(_parse(line, "{}:{}".format(file, number), number))
    seen = {}  # type: Dict[str, int]
    for place, prompt in enumerate(found):
        if seen.setdefault(prompt.id, place) != place:
            raise Refused("{}: id {!r} is used twice".format(file, prompt.id))
    if not found:
        raise Refused("{}: holds no prompt".format(file))
    return found


def lines_of(file: Path) -> Iterator[Tuple[int, str]]:
    """Numbers and text of the lines that are not blank; `Refused` names the file, or the line that is not UTF-8.

    Only line feeds end a line: JSON strings may hold other separators (U+2028) as they are.
    """
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        raise Refused("{}: no such file".format(file)) from None
    except OSError as error:
        raise Refused("{}: cannot be read: {}".format(file, error.strerror)) from None
    for number, line in enumerate(content.split(b"\n"), 1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError as error:
            raise Refused(
                "{}:{}: not UTF-8 (byte {} of the line)".format(file, number, error.start + 1),
                "save it as UTF-8",
            ) from None
        if text:
            yield number, text


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


def parse_line(line: str, where: str) -> Dict[str, Any]:
    """The JSON object of a line."""
    try:
        entry = json.loads(line)
        line.encode()
        json.dumps(entry, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Refused("{}: holds half of a surrogate pair, which is no text".format(where)) from None
    except (ValueError, RecursionError) as error:
        raise Refused("{}: not JSON: {}".format(where, error)) from None
    if not isinstance(entry, dict):
        raise Refused("{}: not a JSON object".format(where))
    return entry


def _parse(line: str, where: str, number: int) -> Prompt:
    entry = parse_line(line, where)
    messages, text = entry.get("messages"), entry.get("text")
    if messages is None and "prompt" in entry:
        messages = [{"role": "user", "content": entry["prompt"]}]
    if messages is not None and not _conversation(messages):
        raise Refused(
            "{}: its prompt or messages are not text".format(where),
            'a string, or a list of {"role": "user", "content": "..."}',
        )
    if text is not None and not (isinstance(text, str) and text):
        raise Refused("{}: text is {!r}, not a text".format(where, text))
    named = entry.get("id", number)
    if not isinstance(named, (str, int)) or named == "":
        raise Refused("{}: id is {!r}, not a name or number".format(where, named))
    given = _given(entry, where)
    if sum(kind is not None for kind in (messages, text, given)) != 1:
        raise Refused("{}: needs one of prompt, messages, text, or prompt_ids and response_ids".format(where))
    return Prompt(str(named), str(entry.get("domain", "unstated")), messages, text, given)


def _conversation(messages: Any) -> bool:
    """Whether these are turns with a role and a content that is text."""
    return (
        isinstance(messages, list)
        and bool(messages)
        and all(
            isinstance(turn, dict)
            and isinstance(turn.get("role"), str)
            and isinstance(turn.get("content"), str)
            for turn in messages
        )
        and any(turn["content"] for turn in messages)
    )


def _given(entry: Dict[str, Any], where: str) -> Optional[Tuple[List[int], List[int]]]:
    lists = entry.get("prompt_ids"), entry.get("response_ids")
    if lists == (None, None):
        return None
    if not all(isinstance(ids, list) and ids and all(type(i) is int for i in ids) for ids in lists):
        raise Refused("{}: prompt_ids and response_ids must both be lists of token ids".format(where))
    return lists[0], lists[1]  # type: ignore[return-value]
