"""Training samples: token ids, and which of them are the target's own response and so supervised.

A JSONL line is one of: {"input_ids", "loss_mask"}; {"prompt", "response"} or {"messages"} (rendered with the
target's chat template); {"text"} (all of it supervised). Each may carry an "id".
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dflash.data.prompts import lines_of, parse_line
from dflash.errors import Refused
from dflash.target.identity import vocabulary_files


@dataclass(frozen=True)
class Sample:
    """One sequence; `supervised[t]` says whether token t may be an anchor or a label."""

    id: str
    input_ids: list[int]
    supervised: list[bool]

    def cut(self, length: int) -> Sample:
        """The first `length` tokens."""
        return Sample(self.id, self.input_ids[:length], self.supervised[:length])

    def candidates(self) -> list[int]:
        """Positions that may be anchors: they and their successors are supervised."""
        s = self.supervised
        return [t for t in range(len(s) - 1) if s[t] and s[t + 1]]


def read(file: Path, tokenizer: Any, max_length: int, thinking: bool = False) -> list[Sample]:
    """Samples of a JSONL file that have at least one anchor; `Refused` names a bad line."""
    samples = []
    for number, line in lines_of(file):
        entry = parse_line(line, f"{file}:{number}")
        try:
            ids, supervised = _tokens(entry, tokenizer, thinking)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise Refused(f"{file}:{number}: {what}", "see the first lines of samples.py") from None
        sample = Sample(str(entry.get("id", number)), ids, supervised).cut(max_length)
        if sample.candidates():
            samples.append(sample)
    if not samples:
        raise Refused(f"{file}: no sample has two supervised tokens in a row within {max_length} tokens")
    return samples


def require_known(found: list[Sample], vocabulary: int, file: Path) -> list[Sample]:
    """Refuse ids that the target's embedding does not have: those of another tokenizer."""
    for sample in found:
        if min(sample.input_ids) < 0 or max(sample.input_ids) >= vocabulary:
            raise Refused(
                f"{file}: sample {sample.id} has token ids outside the target's vocabulary of {vocabulary}",
                "made with another tokenizer?",
            )
    return found


def write(file: Path, samples: list[Sample]) -> None:
    """Write as JSONL of ids and masks, durably."""
    from dflash.files import write_durably

    lines = (
        json.dumps({"id": s.id, "input_ids": s.input_ids, "loss_mask": [int(v) for v in s.supervised]})
        for s in samples
    )
    write_durably(file, ("\n".join(lines) + "\n").encode())


def _tokens(entry: dict[str, Any], tokenizer: Any, thinking: bool) -> tuple[list[int], list[bool]]:
    if "input_ids" in entry:
        ids = [int(t) for t in entry["input_ids"]]
        mask = [bool(m) for m in entry.get("loss_mask", [1] * len(ids))]
        if len(ids) != len(mask):
            raise ValueError(f"{len(ids)} input_ids but {len(mask)} entries in loss_mask")
        return ids, mask
    if "text" in entry:
        ids = tokenizer.encode(entry["text"], add_special_tokens=False)
        return ids, [True] * len(ids)
    messages = entry.get("messages")
    if messages is None:
        messages = [
            {"role": "user", "content": entry["prompt"]},
            {"role": "assistant", "content": entry["response"]},
        ]
    if not messages or messages[-1].get("role") != "assistant":
        raise ValueError("the last message is not the assistant's: nothing to supervise")
    prompt = render(tokenizer, messages[:-1], thinking)
    response = tokenizer.encode(messages[-1]["content"], add_special_tokens=False)
    if tokenizer.eos_token_id is not None:
        response = [*response, tokenizer.eos_token_id]
    return [*prompt, *response], [False] * len(prompt) + [True] * len(response)


def open_tokenizer(target: Path) -> Any:
    """The target's tokenizer. Where there is none, transformers would make one that knows no text."""
    from transformers import AutoTokenizer

    if not vocabulary_files(target):
        raise Refused(f"{target}: no tokenizer.json here", "copy the whole model folder")
    return AutoTokenizer.from_pretrained(str(target), local_files_only=True)


def render(tokenizer: Any, messages: list[dict[str, str]], thinking: bool) -> list[int]:
    """Token ids of a conversation with the assistant's turn opened, the thinking flag given explicitly."""
    if not getattr(tokenizer, "chat_template", None):
        raise Refused("the target's tokenizer has no chat template", "give token ids or plain text instead")
    text = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=False, enable_thinking=thinking
    )
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
    return ids
