"""What an evaluation needs of each prompt, reference and features, found in the cache or made; the target is
loaded only when something is missing, and freed before the drafter runs."""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dflash.data import reference_features, references
from dflash.data.api_client import Api, Unanswered
from dflash.data.cache_keys import feature_file, feature_key, reference_key
from dflash.data.prompts import Prompt
from dflash.data.references import Reference
from dflash.data.samples import open_tokenizer
from dflash.errors import Refused
from dflash.evaluation import memory
from dflash.events import emit
from dflash.target.greedy import greedy
from dflash.target.model import Target

LOST = 2  # unanswered prompts in a row after which a server is not asked any more


class Inputs:
    """References and features for the prompts asked; `missing` says of which prompts there are none, and why."""

    def __init__(
        self,
        args: argparse.Namespace,
        prompts: Sequence[Prompt],
        identity: dict[str, Any],
        taps: Sequence[int],
        dtype: torch.dtype,
    ) -> None:
        self.args, self.prompts, self.identity, self.taps, self.dtype = (
            args,
            prompts,
            identity,
            list(taps),
            dtype,
        )
        self.dtype_name = str(dtype).removeprefix("torch.")
        self.source = "api" if args.api else "target"
        self.missing: list[dict[str, str]] = []
        self._target: Target | None = None
        self._tokenizer: Any = None
        self._silent = 0  # prompts in a row that the server did not answer

    def gather(self, drafted: int) -> list[Reference]:
        """References with at least one whole block, their features on disk; in the prompts' order."""
        found = [r for r in self._references() if self._long_enough(r, drafted)]
        self._features(found)
        self.free()
        return found

    def features(self, reference: Reference) -> reference_features.Features:
        """The kept features of a reference."""
        kept = reference_features.read(self._feature_file(reference))
        if kept is None:
            raise Refused(f"features of prompt {reference.prompt_id} vanished from {self.args.work}")
        return kept

    def free(self) -> None:
        """Give the target's memory back."""
        self._target = None
        gc.collect()

    def _references(self) -> list[Reference]:
        make = self._from_server() if self.args.api else self._from_target
        found = []
        lost: Unanswered | None = None
        for done, prompt in enumerate(self.prompts, 1):
            try:
                reference, rate = self._reference(prompt, make, lost)
            except Refused as refused:
                # Two prompts in a row without any answer: the rest is not asked, each after its time-out.
                unanswered = isinstance(refused, Unanswered)
                self._silent = self._silent + 1 if unanswered else 0
                if isinstance(refused, Unanswered) and self._silent >= LOST:
                    lost = lost or refused
                self._miss(prompt.id, prompt.domain, refused.what)
                emit("progress", phase="references", done=done, of=len(self.prompts), missing=prompt.id)
                continue
            found.append(reference)
            emit("progress", phase="references", done=done, of=len(self.prompts), **rate)
        if not found:
            raise Refused(f"no reference could be made: {self.missing[0]['reason']}")
        return found

    def _reference(
        self, prompt: Prompt, make: Callable[[Prompt], Reference], lost: Unanswered | None
    ) -> tuple[Reference, dict[str, float]]:
        """Given, kept, or made now (then with its rate)."""
        if prompt.given is not None:
            return self._sound(references.given(prompt)), {}
        key = reference_key(
            prompt,
            self.identity,
            source=self.source,
            max_new_tokens=self.args.max_new_tokens,
            thinking=self.args.thinking,
            dtype=self.dtype_name,
        )
        reference = references.load(self.args.work, prompt, key)
        if reference is not None:
            return self._sound(reference), {}
        if lost is not None:
            raise Unanswered(f"not asked, as the server no longer answered: {lost.what}")
        began = time.monotonic()
        reference = self._sound(make(prompt))
        self._silent = 0
        references.keep(self.args.work, prompt, key, reference)
        return reference, {"tokens_per_s": round(len(reference.response_ids) / (time.monotonic() - began), 1)}

    def _room(self, prompt_ids: Sequence[int]) -> int:
        """How many tokens may follow; past its positions a target writes noise."""
        config = json.loads((self.args.target / "config.json").read_text(encoding="utf-8"))
        most = (config.get("text_config") or config).get("max_position_embeddings")
        if not isinstance(most, int):
            return int(self.args.max_new_tokens)
        if len(prompt_ids) >= most:
            raise Refused(f"its {len(prompt_ids)} tokens fill the target's {most} positions")
        return min(int(self.args.max_new_tokens), most - len(prompt_ids))

    def _sound(self, reference: Reference) -> Reference:
        shape = memory.shape_of(json.loads((self.args.target / "config.json").read_text(encoding="utf-8")))
        return references.sound(reference, shape.vocab, references.stop_tokens(self.args.target))

    def _from_server(self) -> Callable[[Prompt], Reference]:
        api = Api(self.args.api, timeout=self.args.api_timeout, model=self.args.api_model)

        def ask(prompt: Prompt) -> Reference:
            return references.ask_server(
                api, prompt, self.tokenizer, self.args.max_new_tokens, self.args.thinking
            )

        return ask

    def _from_target(self, prompt: Prompt) -> Reference:
        ids = references.prompt_tokens(prompt, self.tokenizer, self.args.thinking)
        stops = references.stop_tokens(self.args.target)
        answer = greedy(self.target, ids, self._room(ids), stops)
        return Reference(
            prompt_id=prompt.id,
            domain=prompt.domain,
            prompt_ids=ids,
            response_ids=answer,
            finished=answer[-1] in stops,
            source="target",
            model=str(self.identity["id"]),
            ids_from="target",
        )

    def _long_enough(self, reference: Reference, drafted: int) -> bool:
        length = len(reference.response_ids)
        if length > drafted:
            return True
        reason = f"its answer has {length} tokens; a block needs {drafted + 1}"
        self._miss(reference.prompt_id, reference.domain, reason)
        return False

    def _features(self, found: Sequence[Reference]) -> None:
        for done, reference in enumerate(found, 1):
            file = self._feature_file(reference)
            began, rate = time.monotonic(), {}
            if reference_features.read(file) is None:
                features = reference_features.compute(self.target, reference, self.taps)
                about = {
                    "prompt": reference.prompt_id,
                    "target": str(self.identity["id"]),
                    "taps": str(self.taps),
                }
                reference_features.write(file, features, about)
                rate = {"tokens_per_s": round(len(reference.ids) / (time.monotonic() - began), 1)}
            emit("progress", phase="features", done=done, of=len(found), **rate)

    def _feature_file(self, reference: Reference) -> Any:
        key = feature_key(
            reference.prompt_ids, reference.response_ids, self.identity, self.taps, self.dtype_name
        )
        return feature_file(self.args.work, reference.prompt_id, key)

    def _miss(self, prompt: str, domain: str, reason: str) -> None:
        self.missing.append({"prompt": prompt, "domain": domain, "reason": reason})

    @property
    def target(self) -> Target:
        """The target, loaded when first needed."""
        if self._target is None:
            self._target = Target.load(self.args.target, self.dtype)
        return self._target

    @property
    def tokenizer(self) -> Any:
        """The target's tokenizer, loaded when first needed."""
        if self._tokenizer is None:
            self._tokenizer = open_tokenizer(self.args.target)
        return self._tokenizer
