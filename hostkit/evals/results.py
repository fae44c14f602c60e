"""The result of one evaluation, `hostkit.eval-result/1`: read tolerantly, written strictly.

Lengths are draft tokens accepted in a row from the anchor, neither anchor nor bonus counted. The payload
writes this document, the archive keeps it, comparisons read it. NaN and infinity become null with a reason.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hostkit.errors import DataError
from hostkit.strictjson import dumps, finite

SCHEMA = "hostkit.eval-result/1"

# neither a text nor a truth value is a number here
Count = Annotated[int, Field(strict=True, ge=0)]
Real = Annotated[float, Field(strict=True)]
_NO_NUMBERS = {"nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"}


class Part(BaseModel):
    """Keys that a newer writer adds are kept, not refused: schemas only grow."""

    model_config = ConfigDict(extra="allow", frozen=True)


class CheckpointOf(Part):
    path: str | None = None
    sha256: str | None = None
    step: Count | None = None
    block_size: Count | None = None
    format: str | None = None


class Settings(Part):
    block_size: int
    trained_block_size: int | None = None
    blocks_per_prompt: int
    seed: int = 0
    max_new_tokens: int | None = None
    max_prompts: int | None = None
    thinking: bool = False
    dtype: str | None = None
    threads: int | None = None
    ddtree_budgets: list[int] = []
    metric_definition: str = "unverified"


class TargetOf(Part):
    id: str | None = None
    config_sha256: str | None = None
    vocab_sha256: str | None = None
    template_sha256: str | None = None
    dtype: str | None = None


class References(Part):
    source: str
    model: str | None = None


class Missing(Part):
    prompt: str
    domain: str | None = None
    reason: str


class DomainCoverage(Part):
    asked: Count
    done: Count
    blocks: Count


class Coverage(Part):
    prompts_asked: Count
    prompts_done: Count
    blocks: Count
    missing: list[Missing] = []
    by_domain: dict[str, DomainCoverage] = {}

    @model_validator(mode="after")
    def _adds_up(self) -> Coverage:
        if self.prompts_done > self.prompts_asked:
            raise ValueError(f"{self.prompts_done} prompts done of {self.prompts_asked} asked")
        return self

    @property
    def partial(self) -> bool:
        return self.prompts_done < self.prompts_asked


class Metric(Part):
    """A pooled mean over blocks (or rounds) with its counts; the interval is over prompt means."""

    mean: Real | None
    sum: Real | None = None
    n: Count
    prompts: Count | None = None
    interval: tuple[Real, Real] | None = None
    reason: str | None = None


class Block(Part):
    """One block: a draft from one anchor (position in the sequence, tokens)."""

    anchor: Count
    accept_len: Count
    accept_len_top4_oracle: Count | None = None
    accept_len_top8_oracle: Count | None = None
    ddtree: dict[str, Count] = {}

    def value(self, metric: str) -> float | None:
        """Return this block's value of a per-block metric; None when it has none."""
        if metric.startswith("accept_len_ddtree@"):
            return self.ddtree.get(metric.partition("@")[2])
        value = getattr(self, metric, None)
        return float(value) if isinstance(value, int | float) else None


class PromptResult(Part):
    id: str
    domain: str | None = None
    blocks: list[Block] = []
    reference_sha256: str | None = None


class Agreement(Part):
    agree: int
    of: int
    rate: float | None
    passed: bool


class EvalResult(Part):
    """One evaluation's result."""

    schema_: str = Field(alias="schema")
    id: str
    created_at: str
    status: Literal["complete", "partial", "failed"]
    checkpoint: CheckpointOf
    settings: Settings
    target: TargetOf
    references: References
    coverage: Coverage
    metrics: dict[str, Metric]
    per_position: dict[str, Any] = {}
    per_prompt: list[PromptResult] = []
    target_agreement: Agreement | None = None
    isolation: dict[str, Any] = {}
    provenance: dict[str, Any] = {}

    @model_validator(mode="after")
    def _each_prompt_once(self) -> EvalResult:
        twice = [one for one, count in Counter(prompt.id for prompt in self.per_prompt).items() if count > 1]
        if twice:
            raise ValueError(f"prompt {twice[0]!r} stands twice")
        return self

    def document(self) -> dict[str, Any]:
        """Return the JSON document, with null where a number is not finite."""
        return self.model_dump(mode="json", by_alias=True)


def parse(data: bytes, *, where: str) -> EvalResult:
    """Read a result file. Raises DataError naming `where` for anything that is no result of this schema."""
    try:
        document = json.loads(data.decode("utf-8"), object_pairs_hook=_once)
        return _result(document, where)
    except (UnicodeDecodeError, ValueError) as error:
        raise DataError(f"not a JSON document: {error}", where=where) from error
    except RecursionError:
        raise DataError("not a result: nested too deeply", where=where) from None


def _result(document: Any, where: str) -> EvalResult:
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise DataError(f"not a {SCHEMA} document (its schema: {found!r})", where=where)
    try:
        return EvalResult.model_validate(finite(_with_reasons(document)))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise DataError(
            f"{error.error_count()} faults, the first at {place}: {first['msg']}", where=where
        ) from error


def dump(document: dict[str, Any]) -> bytes:
    """Return a document as the archive keeps it: strict JSON, sorted and indented."""
    # half a surrogate pair, which a file name may hold, has no UTF-8, and an escape in JSON
    return (dumps(document, indent=1, sort_keys=True) + "\n").encode("utf-8", "backslashreplace")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(
            f"the key {Counter(key for key, _ in pairs).most_common(1)[0][0]!r} stands twice in one object"
        )
    return found


def _with_reasons(document: dict[str, Any]) -> dict[str, Any]:
    """Say in `reason` of each metric whose mean is no number that it was none, since null alone does not.

    Some write such a number as a text. An interval with an end that is no number is none.
    """
    metrics = document.get("metrics")
    for metric in metrics.values() if isinstance(metrics, dict) else ():
        if not isinstance(metric, dict):
            continue
        for key in ("mean", "sum"):
            if _no_number(value := metric.get(key)):
                metric[key] = None
                if key == "mean":
                    metric.setdefault("reason", f"not a number ({value})")
        ends = metric.get("interval")
        if isinstance(ends, list) and any(one is None or _no_number(one) for one in ends):
            metric["interval"] = None
    return document


def _no_number(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in _NO_NUMBERS
    return isinstance(value, float) and not math.isfinite(value)
