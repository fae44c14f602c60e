"""An evaluation from start to result: inputs, the agreement gate, blocks per prompt, one document by rename."""

from __future__ import annotations

import argparse
import os
import platform
import secrets
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from dflash import harness
from dflash.data import prompts
from dflash.data.references import Reference
from dflash.drafter.loading import load_drafter
from dflash.errors import Refused
from dflash.evaluation import isolation
from dflash.evaluation import result as evaluation_result
from dflash.evaluation.block_records import BlockRecords, Compared
from dflash.evaluation.compatibility import refuse_mismatch, strangeness
from dflash.evaluation.evaluator import Evaluator, PromptResult
from dflash.evaluation.inputs import Inputs
from dflash.events import emit
from dflash.files import require_place, write_json
from dflash.target.dtype import target_dtype
from dflash.target.embeddings import Vocabulary
from dflash.target.identity import identify

CAUSES = "another chat template, thinking flag, tokenizer or model revision; or text that was encoded again"


class Evaluation:
    """One run of eval_drafter.py; `go` returns its exit status."""

    def __init__(self, args: argparse.Namespace) -> None:
        isolation.refuse_gpus()
        from transformers.utils import logging

        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        if args.threads:
            torch.set_num_threads(args.threads)
        self.args = args
        for place in (args.out, args.work / "trial"):
            require_place(place)
        self.identity = identify(args.target)
        self.dtype = target_dtype(args.target, args.dtype)
        self.loaded = load_drafter(args.checkpoint, self.dtype)
        self.weights_sha256 = harness.sha256_of(args.checkpoint)
        self.config = self.loaded.config
        self.block_size = args.block_size or self.config.block_size
        if args.smoke:
            shorten(args, self.block_size)
        self.dtype_check: dict[str, Any] | None = None
        self.from_records = 0
        self.asked = prompts.choose(prompts.read(args.prompts), args.max_prompts)
        refuse_mismatch(self.loaded.config, self.loaded.about, args.target, self.identity)

    def go(self) -> int:
        """Measure and write the result."""
        inputs = self.inputs()
        references = inputs.gather(self.block_size - 1)
        agreement = self.agreement(inputs, references)
        results = self._measure(inputs, references)
        if self.args.smoke:
            if not results or not results[0].blocks:
                raise Refused(
                    "the smoke run measured no block", inputs.missing[0]["reason"] if inputs.missing else None
                )
            emit("smoke", ok=True, accept_len=results[0].blocks[0].accept_len)
            return 0
        document = self._document(inputs, references, results, agreement)
        write_json(self.args.out, document)
        if document["status"] == "failed":
            raise Refused(
                f"no block was measured: {inputs.missing[0]['reason'] if inputs.missing else 'no prompt'}",
                f"{self.args.out} says it for each prompt",
            )
        emit("done", result=str(self.args.out), status=document["status"])
        return 0

    def inputs(self) -> Inputs:
        """References and features, kept or to be made."""
        return Inputs(self.args, self.asked, self.identity, self.config.target_layer_ids, self.dtype)

    def agreement(self, inputs: Inputs, references: Sequence[Reference]) -> dict[str, Any]:
        """The gate. References that were given are not meant to be the target's own: counted, not judged."""
        judged = [r for r in references if r.source != "given"]
        counts = [(f.agree, f.of) for f in map(inputs.features, judged or references)]
        agree, of = sum(a for a, _ in counts), sum(o for _, o in counts)
        rate = agree / of if of else 0.0
        passed = rate >= self.args.min_agreement
        emit("progress", phase="agreement", done=agree, of=of)
        if judged and not passed:
            raise Refused(
                f"the target itself chooses only {agree} of {of} reference tokens ({rate:.1%}); "
                f"at least {self.args.min_agreement:.0%} is expected",
                f"likely: {CAUSES}",
            )
        return {"agree": agree, "of": of, "rate": rate, "passed": passed}

    def _measure(self, inputs: Inputs, references: Sequence[Reference]) -> list[PromptResult]:
        """Blocks of every prompt; those that an earlier run finished are read from its records."""
        args = self.args
        records = self._records()
        # A smoke run is there to do the work once.
        kept = {} if args.smoke else {r.prompt_id: found for r in references if (found := records.load(r))}
        self.from_records = len(kept)
        if kept:
            emit("progress", phase="blocks", done=len(kept), of=len(references), kept=len(kept))
        todo = [r for r in references if r.prompt_id not in kept]
        measured = self._evaluators(todo) if todo else None
        results: list[PromptResult] = []
        differing: list[Compared] = []
        done = len(kept)
        for reference in references:
            found = kept.get(reference.prompt_id)
            if found is None:
                assert measured is not None
                found = self._one(measured, inputs, reference)
                if not args.smoke:
                    records.keep(reference, *found)
                done += 1
                emit("progress", phase="blocks", done=done, of=len(references), prompt=reference.prompt_id)
            results.append(found[0])
            if found[1] is not None:
                differing.append(found[1])
        if args.compare_dtypes:
            changed, of = sum(c for c, _ in differing), sum(o for _, o in differing)
            self.dtype_check = {"against": _name(self._other()), "changed": changed, "of": of}
        return results

    def _records(self) -> BlockRecords:
        args = self.args
        decides = {
            "weights": self.weights_sha256,
            "drafter": self.config.document(),
            "format": self.loaded.format,
            "block_size": self.block_size,
            "blocks_per_prompt": args.blocks_per_prompt,
            "seed": args.seed,
            "budgets": args.budgets,
            "loop": not args.no_loop,
            "compared": args.compare_dtypes,
            "dtype": _name(self.dtype),
        }
        return BlockRecords(args.work, decides, self.identity, self.config.target_layer_ids)

    def _evaluators(self, references: Sequence[Reference]) -> tuple[Evaluator, Evaluator | None]:
        """The drafter with the vocabulary that these references need; once more in the other dtype if asked."""
        ids = {self.config.mask_token_id, *(token for r in references for token in r.response_ids)}
        vocabulary = Vocabulary.read(self.args.target, sorted(ids), self.dtype)
        if vocabulary.size != self.config.vocab_size:
            raise Refused(
                f"the target's head has {vocabulary.size} rows, the drafter was made for {self.config.vocab_size}"
            )
        first = Evaluator(self.loaded.drafter, vocabulary, self.block_size, self.args.budgets)
        if not self.args.compare_dtypes:
            return first, None
        again = load_drafter(self.args.checkpoint, self._other()).drafter
        return first, Evaluator(again, vocabulary.to(self._other()), self.block_size, [])

    def _one(
        self, measured: tuple[Evaluator, Evaluator | None], inputs: Inputs, reference: Reference
    ) -> tuple[PromptResult, Compared | None]:
        """Measure a prompt; count drafted tokens that come out differently in the other dtype."""
        first, second = measured
        at = (reference, inputs.features(reference).rows, self.args.blocks_per_prompt, self.args.seed)
        evaluation_result = first.measure(*at, loop=not self.args.no_loop)
        if second is None:
            return evaluation_result, None
        one, two = first.decisions(*at), second.decisions(*at)
        return evaluation_result, (int((one != two).sum()), one.numel())

    def _other(self) -> torch.dtype:
        return torch.float32 if self.dtype == torch.bfloat16 else torch.bfloat16

    def _document(
        self,
        inputs: Inputs,
        references: Sequence[Reference],
        results: Sequence[PromptResult],
        agreement: dict[str, Any],
    ) -> dict[str, Any]:
        args = self.args
        cover = evaluation_result.coverage([(p.id, p.domain) for p in self.asked], results, inputs.missing)
        kinds = [r.ids_from for r in references]
        return {
            "schema": evaluation_result.SCHEMA,
            "id": args.id or secrets.token_hex(8),
            "created_at": datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "status": evaluation_result.status_of(cover),
            "checkpoint": {
                "path": str(args.checkpoint),
                "sha256": self.weights_sha256,
                "step": self.loaded.step,
                "block_size": self.config.block_size,
                "format": self.loaded.format,
            },
            "settings": self._settings(),
            "target": {
                k: self.identity[k] for k in ("id", "config_sha256", "vocab_sha256", "template_sha256")
            }
            | {"dtype": inputs.dtype_name},
            "references": {
                "source": references[0].source if references else inputs.source,
                "model": references[0].model if references else None,
                "ids_from": {kind: kinds.count(kind) for kind in sorted(set(kinds))},
                "finished": sum(r.finished for r in references),
            },
            "coverage": cover,
            **evaluation_result.figures(results, args.budgets, self.block_size - 1),
            "target_agreement": agreement,
            "dtype_check": self.dtype_check,
            "caveats": self._caveats(kinds, results),
            "isolation": isolation.account(),
            "provenance": {**provenance(), "prompts_from_records": self.from_records},
        }

    def _settings(self) -> dict[str, Any]:
        args = self.args
        return {
            "block_size": self.block_size,
            "trained_block_size": self.config.block_size,
            "blocks_per_prompt": args.blocks_per_prompt,
            "seed": args.seed,
            "max_new_tokens": args.max_new_tokens,
            "max_prompts": args.max_prompts,
            "thinking": args.thinking,
            "dtype": _name(self.dtype),
            "threads": torch.get_num_threads(),
            "ddtree_budgets": args.budgets,
            "metric_definition": "hostkit/1",
        }

    def _caveats(self, kinds: Sequence[str], results: Sequence[PromptResult]) -> list[str]:
        said = []
        if self.block_size != self.config.block_size:
            said.append(f"measured at block size {self.block_size}, trained at {self.config.block_size}")
        if "reencoded" in kinds:
            said.append(
                f"{kinds.count('reencoded')} references are text encoded again, not the server's own ids"
            )
        if "given" in kinds:
            said.append(
                "references were given, not the target's own greedy text: lengths are not a decoder's"
            )
        looping = [r.id for r in results if r.distinct_ngram_rate is not None and r.distinct_ngram_rate < 0.5]
        if looping:
            said.append(
                f"{len(looping)} of {len(results)} references repeat themselves, which flatters every length"
            )
        said += strangeness(self.loaded.about, self.identity, self.args.thinking)
        return said


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def shorten(args: argparse.Namespace, block_size: int) -> None:
    """Turn a run into its smoke test: one prompt, one block, the shortest reference that has one."""
    args.max_prompts, args.blocks_per_prompt, args.no_loop = 1, 1, True
    args.max_new_tokens = min(args.max_new_tokens, 2 * block_size)


def provenance() -> dict[str, Any]:
    """What made this result: files, libraries, interpreter, command line, machine."""
    import numpy
    import safetensors
    import transformers

    modules = (torch, transformers, safetensors, numpy)
    return {
        "harness": harness.hashes(),
        "libraries": {m.__name__: str(m.__version__) for m in modules},
        "python": platform.python_version(),
        "argv": [str(Path(sys.argv[0])), *sys.argv[1:]],
        "hostname": os.uname().nodename,
    }
