"""Compare two results: like with like, or say what differs. Pure.

Differences are paired by prompt and anchor and averaged per prompt; the interval is a t interval over the
prompts' mean differences. Nothing is called better when the interval holds zero.
"""

from __future__ import annotations

import statistics
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from hostkit.evals.results import EvalResult, PromptResult
from hostkit.evals.t_interval import interval

FEW_PROMPTS = 5
# of the settings that hostkit does not know itself: those that move a figure by rounding alone
_HARMLESS = {"batch", "batch_size", "workers", "num_workers", "device"}


class Difference(BaseModel):
    """How the second result differs from the first in one metric, over the pairs that both have."""

    model_config = ConfigDict(frozen=True)

    reference: float
    other: float
    difference: float
    interval: tuple[float, float] | None
    prompts: int
    pairs: int
    words: Literal["better", "worse", "no significant difference", "too few prompts to say"]


class Comparison(BaseModel):
    """What two results say beside each other."""

    model_config = ConfigDict(frozen=True)

    reference: str
    other: str
    verdict: Literal["comparable", "comparable with caveats", "not comparable"]
    reasons: list[str] = []  # why not comparable
    caveats: list[str] = []
    conflict: str | None = None  # one checkpoint, like settings, and beyond their intervals
    differences: dict[str, Difference] = {}

    def document(self) -> dict[str, Any]:
        return {"schema": "hostkit.eval-comparison/1"} | self.model_dump(mode="json")


def compare(reference: EvalResult, other: EvalResult) -> Comparison:
    """Compare `other` with `reference`."""
    reasons = _reasons(reference, other)
    caveats = _caveats(reference, other)
    differences = {} if reasons else _differences(reference, other)
    conflict = None
    same = reference.checkpoint.sha256 is not None and reference.checkpoint.sha256 == other.checkpoint.sha256
    if same and not reasons and not caveats:
        off = [name for name, item in differences.items() if item.words in ("better", "worse")]
        if off:
            conflict = f"one checkpoint, like settings, yet {', '.join(off)} differ beyond the interval"
    if same and not reasons:
        caveats = ["the same checkpoint: the samples differ, not the model", *caveats]
    verdict: Literal["comparable", "comparable with caveats", "not comparable"] = "comparable"
    if reasons:
        verdict = "not comparable"
    elif caveats:
        verdict = "comparable with caveats"
    return Comparison(
        reference=reference.id,
        other=other.id,
        verdict=verdict,
        reasons=reasons,
        caveats=caveats,
        conflict=conflict,
        differences=differences,
    )


def _reasons(a: EvalResult, b: EvalResult) -> list[str]:
    """Return what forbids a comparison, each named."""
    found = []
    for what, one, two in (
        ("target", a.target.config_sha256 or a.target.id, b.target.config_sha256 or b.target.id),
        ("tokenizer", a.target.vocab_sha256, b.target.vocab_sha256),
        ("chat template", a.target.template_sha256, b.target.template_sha256),
        ("thinking flag", a.settings.thinking, b.settings.thinking),
        ("metric definition", a.settings.metric_definition, b.settings.metric_definition),
    ):
        if one is None or two is None:
            found.append(f"{what}: not recorded in both")
        elif one != two:
            found.append(f"{what} differs ({_short(one)} and {_short(two)})")
    found += _other_settings(a, b, grave=True)
    if "unverified" in (a.settings.metric_definition, b.settings.metric_definition):
        found.append("metric definition unverified")
    if not {prompt.id for prompt in a.per_prompt} & {prompt.id for prompt in b.per_prompt}:
        found.append("no prompt in common")
    elif not _pairs(a, b):
        found.append("no reference and anchor in common")
    return found


def _caveats(a: EvalResult, b: EvalResult) -> list[str]:
    found = []
    for what, one, two in (
        ("block size", a.settings.block_size, b.settings.block_size),
        ("dtype", a.settings.dtype, b.settings.dtype),
        ("source of the references", a.references.source, b.references.source),
        ("harness", a.provenance.get("harness"), b.provenance.get("harness")),
        ("library versions", a.provenance.get("libraries"), b.provenance.get("libraries")),
    ):
        if one != two:
            shown = f" ({one} and {two})" if isinstance(one, int | str) and isinstance(two, int | str) else ""
            found.append(f"{what} differs{shown}")
    found += _other_settings(a, b, grave=False)
    if a.settings.seed == b.settings.seed and a.settings.blocks_per_prompt != b.settings.blocks_per_prompt:
        found.append(
            f"nested samples: {a.settings.blocks_per_prompt} and {b.settings.blocks_per_prompt} blocks a prompt; "
            "compared on the blocks that both have"
        )
    elif a.settings.seed != b.settings.seed:
        found.append("the seed differs: compared on the blocks that both have")
    for result, word in ((a, "the reference"), (b, "the other")):
        if result.coverage.partial:
            found.append(
                f"{word} is partial: {result.coverage.prompts_done} of {result.coverage.prompts_asked} prompts"
            )
    return found


def _other_settings(a: EvalResult, b: EvalResult, *, grave: bool) -> list[str]:
    """Return what differs in settings that hostkit does not know: few-shot count, sample limit, temperature, …

    Grave where both say it, and not of those that round only; what one of them does not say is not known to differ.
    """
    one, two = a.settings.model_extra or {}, b.settings.model_extra or {}
    found = []
    for name in sorted(one.keys() | two.keys()):
        both = name in one and name in two
        if one.get(name) != two.get(name) and grave == (both and name not in _HARMLESS):
            found.append(
                f"setting {name} differs ({_short(one[name])} and {_short(two[name])})"
                if both
                else f"setting {name} is recorded in one of the two only"
            )
    return found


def _differences(a: EvalResult, b: EvalResult) -> dict[str, Difference]:
    pairs = _pairs(a, b)
    names = [name for name in a.metrics if name.startswith("accept_len") and name in b.metrics]
    found = {}
    for name in names:
        by_prompt: list[tuple[float, float]] = []
        count = 0
        for one, two in pairs:
            values = [
                (x, y)
                for anchor in one.keys() & two.keys()
                if (x := one[anchor].value(name)) is not None and (y := two[anchor].value(name)) is not None
            ]
            if values:
                count += len(values)
                by_prompt.append(
                    (statistics.fmean(x for x, _ in values), statistics.fmean(y for _, y in values))
                )
        if not by_prompt:
            continue
        deltas = [y - x for x, y in by_prompt]
        bounds = interval(deltas)
        found[name] = Difference(
            reference=statistics.fmean(x for x, _ in by_prompt),
            other=statistics.fmean(y for _, y in by_prompt),
            difference=statistics.fmean(deltas),
            interval=bounds,
            prompts=len(by_prompt),
            pairs=count,
            words=_words(bounds),
        )
    return found


def _words(
    bounds: tuple[float, float] | None,
) -> Literal["better", "worse", "no significant difference", "too few prompts to say"]:
    if bounds is None:
        return "too few prompts to say"
    if bounds[0] > 0:
        return "better"
    return "worse" if bounds[1] < 0 else "no significant difference"


def _pairs(a: EvalResult, b: EvalResult) -> list[tuple[dict[int, Any], dict[int, Any]]]:
    """Return, for each prompt with an equal reference in both, its blocks by anchor on either side."""
    others = {prompt.id: prompt for prompt in b.per_prompt}
    found = []
    for prompt in a.per_prompt:
        twin = others.get(prompt.id)
        if twin is None or prompt.reference_sha256 != twin.reference_sha256:
            continue
        one, two = _by_anchor(prompt), _by_anchor(twin)
        if one.keys() & two.keys():
            found.append((one, two))
    return found


def _by_anchor(prompt: PromptResult) -> dict[int, Any]:
    return {block.anchor: block for block in prompt.blocks}


def _short(value: object) -> str:
    text = str(value)
    return text[:12] if len(text) == 64 else text  # a SHA-256 says no more in full
