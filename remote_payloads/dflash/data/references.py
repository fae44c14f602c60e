"""References: what the target answers at temperature 0, from a server or from the target itself, kept by key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dflash.data.api_client import Api
from dflash.data.cache_keys import reference_file
from dflash.data.prompts import Prompt
from dflash.data.samples import render
from dflash.errors import Refused
from dflash.files import write_json
from dflash.target.identity import read_object


@dataclass(frozen=True)
class Reference:
    """A prompt and its answer as token ids. `ids_from`: server, reencoded (text encoded again), target, given."""

    prompt_id: str
    domain: str
    prompt_ids: list[int]
    response_ids: list[int]
    finished: bool
    source: str
    model: str
    ids_from: str

    @property
    def ids(self) -> list[int]:
        return [*self.prompt_ids, *self.response_ids]


def prompt_tokens(prompt: Prompt, tokenizer: Any, thinking: bool) -> list[int]:
    """The prompt rendered by the target's own template, or encoded as it stands."""
    if prompt.messages is not None:
        return render(tokenizer, prompt.messages, thinking)
    ids: list[int] = tokenizer.encode(prompt.text, add_special_tokens=False)
    if not ids:
        raise Refused(f"prompt {prompt.id} is empty")
    return ids


def load(work: Path, prompt: Prompt, key: str) -> Reference | None:
    """A kept reference, None where there is none (or it does not read: it is made again)."""
    file = reference_file(work, prompt, key)
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        document["domain"] = prompt.domain
        return Reference(**document)
    except (FileNotFoundError, ValueError, TypeError):
        return None


def keep(work: Path, prompt: Prompt, key: str, reference: Reference) -> None:
    """Keep it, whole or not at all."""
    write_json(reference_file(work, prompt, key), asdict(reference))


def ask_server(
    api: Api,
    prompt: Prompt,
    tokenizer: Any,
    max_new_tokens: int,
    thinking: bool,
    *,
    sampling: dict[str, Any] | None = None,
    lock: AbstractContextManager[Any] | None = None,
) -> Reference:
    """One answer, greedy unless `sampling` says otherwise; `lock` guards a shared tokenizer.

    Different prompt ids mean another template, tokenizer or flag: refused.
    """
    guard = lock or nullcontext()
    with guard:
        ids = prompt_tokens(prompt, tokenizer, thinking)
    if prompt.messages is not None:
        answer = api.chat(prompt.messages, max_new_tokens, thinking, sampling)
    else:
        answer = api.complete(ids, max_new_tokens, sampling)
    if answer.prompt_ids is not None and answer.prompt_ids != ids:
        at = next(
            (i for i, (a, b) in enumerate(zip(answer.prompt_ids, ids, strict=False)) if a != b),
            min(len(ids), len(answer.prompt_ids)),
        )
        raise Refused(
            f"prompt {prompt.id}: the server reads {len(answer.prompt_ids)} prompt tokens, our template gives "
            f"{len(ids)}; first difference at {at}",
            "another chat template, thinking flag or tokenizer revision than the target's folder",
        )
    response = answer.ids
    if response is None:
        with guard:
            response = tokenizer.encode(answer.text, add_special_tokens=False)
    return Reference(
        prompt_id=prompt.id,
        domain=prompt.domain,
        prompt_ids=ids,
        response_ids=response[:max_new_tokens],
        finished=answer.finished and len(response) <= max_new_tokens,
        source="api",
        model=api.model,
        ids_from="reencoded" if answer.ids is None else "server",
    )


def given(prompt: Prompt) -> Reference:
    """The reference that the prompts file itself holds: not the target's greedy text, so nobody's gate."""
    prompt_ids, response_ids = prompt.given or ([], [])
    return Reference(prompt.id, prompt.domain, prompt_ids, response_ids, True, "given", "given", "given")


def sound(reference: Reference, vocabulary: int, stops: Sequence[int]) -> Reference:
    """The reference up to its first stop token: what comes after it no decoder ever writes.

    Refuses ids that the target's embedding does not have: another tokenizer's.
    """
    outside = next((token for token in reference.ids if not 0 <= token < vocabulary), None)
    if outside is not None:
        raise Refused(
            f"token {outside} is outside the target's vocabulary of {vocabulary}",
            "another model's tokenizer?",
        )
    end = next((i for i, token in enumerate(reference.response_ids, 1) if token in stops), None)
    if end is None:
        return reference
    return replace(reference, response_ids=reference.response_ids[:end], finished=True)


def stop_tokens(folder: Path) -> list[int]:
    """The target's stop tokens, of generation_config.json and config.json."""
    stops: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        file = folder / name
        if file.is_file():
            document = read_object(file)
            for place in (document, document.get("text_config") or {}):
                value = place.get("eos_token_id")
                if value is not None:
                    stops.update(value if isinstance(value, list) else [value])
    return sorted(stops)
