"""Read steps, losses, times and the end marker from a log's tail (pure)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from hostkit.inventory.models import Log
from hostkit.liveness.times import Moment, clock_of, moment_in
from hostkit.sanitize import clean

_NUMBER = r"\d[\d,_]*"
_STEP = re.compile(
    r"(?<![\w/.-])(?:train(?:ing|er)?[/_.])?(?:global[_ ]?step|step|iteration|iter)[\"']?"
    r"(?:\s*[:=#]\s*|\s+|\s*(?=\[))\[?\s*"
    rf"({_NUMBER})(?!\.?\d)(?!\s*m?s\b)(?:\s*(?:/|of)\s*({_NUMBER}))?",
    re.IGNORECASE,
)
_STEPS = re.compile(rf"(?<![\w/.-])steps[\"']?\s*[:=]?\s*({_NUMBER})\s*/\s*({_NUMBER})", re.IGNORECASE)
_BAR = re.compile(r"\d+%\|[^|\n]*\|\s*(\d[\d.]*[kM]?)/(\d[\d.]*[kM]?)\s*\[")
_FRACTION = re.compile(rf"^\W*({_NUMBER})\s*/\s*({_NUMBER})(?![\d/.])")
_VALUE = r"([-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf(?:inity)?))(?![A-Za-z_])"
_LOSS = re.compile(
    rf"(?<![\w/.-])(?:(?:train(?:ing)?|avg|mean|total)[_/ .])?loss[\"']?\s*[:=]?\s*(?:tensor\()?[\"']?{_VALUE}",
    re.IGNORECASE,
)
# a step in such a line is only mentioned, not made
_MENTIONED = re.compile(
    r"\b(?:next|resum\w*|restor\w*|load\w*|until|every|will|sav(?:e|ed|ing)|checkpoint\w*|warm\w*|eval\w*|valid\w*|from)\b",
    re.IGNORECASE,
)
# a progress bar of something else than training
_OTHER_BAR = re.compile(
    r"eval|valid|test|sanity|load|shard|download|map|token|generat|predict|fetch", re.IGNORECASE
)
_STEP_KEYS = (
    "step",
    "global_step",
    "train/global_step",
    "train/step",
    "trainer/global_step",
    "iteration",
    "iter",
    "steps",
)
_LOSS_KEYS = ("loss", "train_loss", "train/loss", "training_loss")
_OWN = ("step", "loss", "time", "finished")  # the inventory checks that they are regular expressions
# what begins a line anew as a carriage return does: to its first column, or to its end and back by backspaces
_ANEW = re.compile(r"(?:\x1b\[|\x9b)(?:[01]?G|[\d;]*[HEF])|\x08{2,}")
_GROUPED = re.compile(r"(?<=\d)[\u00a0\u2009\u202f\u2019'](?=\d{3}(?!\d))")  # 4'000
MAX_STEP = 10**15  # a step beyond it is garbage, and a number beyond any float's would be an error below
MAX_SHOWN = 400  # characters of a line that are kept for showing


@dataclass(frozen=True)
class LogReading:
    """What a tail says. `interval` is the distance between its last two steps; times are in seconds."""

    step: int | None = None
    total: int | None = None
    interval: int = 0
    loss: float | None = None
    rate: float | None = None  # steps a second, between two times in the log
    rate_steps: int = 0
    stepped_at: float | None = None  # epoch seconds of the last step, where the log says them
    finished: str | None = None  # the declared end marker's line, where no step follows it
    lines: tuple[str, ...] = ()

    @property
    def diverged(self) -> bool:
        return self.loss is not None and not math.isfinite(self.loss)


@dataclass
class _Marks:
    """Steps met so far, by how sure their form is: a named step, a progress bar, a bare fraction."""

    strength: int
    marks: list[tuple[int, int | None, Moment | None]] = field(default_factory=list)

    @property
    def newest(self) -> int:
        return self.marks[-1][0] if self.marks else 0


def redraws(text: str) -> list[list[str]]:
    """Return the lines of a tail, each as its redraws (the parts between carriage returns), in order."""
    lines = _GROUPED.sub("", clean(_ANEW.sub("\r", text))).split("\n")
    parted = [[part for part in line.split("\r") if part.strip()] for line in lines]
    return [parts for parts in parted if parts]


def parse(tail: str, log: Log, *, begins: bool = False) -> LogReading:
    """Read a tail. `begins`: it was cut at its beginning, so that its first piece is not a whole one."""
    shape = _shape(log)
    lines = redraws(tail)
    shown = tuple(_shorten(parts[-1]) for parts in lines)
    if begins and lines and sum(map(len, lines)) > 1:
        lines[0] = lines[0][1:]
    by_kind = {kind: _Marks(strength) for kind, strength in (("named", 3), ("bar", 2), ("fraction", 1))}
    loss: float | None = None
    finished: str | None = None
    last = lines[-1][-1] if lines and not tail.endswith(("\n", "\r")) else None
    for parts in lines:
        for part in parts:
            record = _object(part, log.format)
            here = _loss(part, record, shape)
            loss = loss if here is None else here
            step = _step(part, record, shape, has_loss=here is not None)
            if step is not None:
                kind, number, total = step
                if part is last and part[-1].isdigit() and number < by_kind[kind].newest:
                    continue  # still being written: 40 may become 4000
                by_kind[kind].marks.append((number, total, _moment(part, record, shape)))
                finished = None if kind == "named" else finished
            if shape.finished is not None and shape.finished.search(part):
                finished = _shorten(part)
    best = max(
        (marks for marks in by_kind.values() if marks.marks), key=lambda marks: marks.strength, default=None
    )
    if best is None:
        return LogReading(loss=loss, finished=finished, lines=shown)
    return _progress(best.marks, loss, finished, shown)


def _progress(
    marks: list[tuple[int, int | None, Moment | None]],
    loss: float | None,
    finished: str | None,
    shown: tuple[str, ...],
) -> LogReading:
    step, total, moment = marks[-1]
    start = len(marks) - 1  # back to where this attempt's steps begin
    while start and marks[start - 1][0] <= marks[start][0]:
        start -= 1
    attempt = marks[start:]
    before = [number for number, _, _ in attempt if number < step]
    rate, steps = _rate(attempt)
    return LogReading(
        step=step,
        total=total,
        interval=step - before[-1] if before else 0,
        loss=loss,
        rate=rate,
        rate_steps=steps,
        stepped_at=moment.seconds if moment is not None and moment.absolute else None,
        finished=finished,
        lines=shown,
    )


def _rate(marks: list[tuple[int, int | None, Moment | None]]) -> tuple[float | None, int]:
    timed = [(number, moment) for number, _, moment in marks if moment is not None]
    timed = [(number, moment) for number, moment in timed if moment.kind == timed[-1][1].kind]
    if len(timed) < 2:
        return None, 0
    elapsed = 0.0
    for (_, early), (_, late) in pairwise(timed):
        gap = late.seconds - early.seconds
        if gap < 0 and late.kind == "clock":
            gap += 86400  # past midnight
        if gap < 0:
            return None, 0
        elapsed += gap
    steps = timed[-1][0] - timed[0][0]
    return (steps / elapsed, steps) if steps > 0 and elapsed >= 0.5 else (None, 0)


@dataclass(frozen=True)
class _Shape:
    """The inventory's own expressions: each a regular expression and, for JSON lines, a key."""

    step: re.Pattern[str] | None = None
    loss: re.Pattern[str] | None = None
    time: re.Pattern[str] | None = None
    finished: re.Pattern[str] | None = None
    step_keys: tuple[str, ...] = _STEP_KEYS
    loss_keys: tuple[str, ...] = _LOSS_KEYS
    time_key: str | None = None


def _shape(log: Log) -> _Shape:
    given: dict[str, Any] = {name: re.compile(text) for name in _OWN if (text := getattr(log, name))}
    given.update({f"{name}_keys": (getattr(log, name),) for name in ("step", "loss") if getattr(log, name)})
    return _Shape(**given, time_key=log.time)


def _object(line: str, form: str) -> dict[str, Any] | None:
    """Return the JSON object that a line is, or ends with; NaN and infinity are numbers here."""
    begin = line.find("{")
    if form == "text" or begin < 0 or not line.rstrip().endswith("}"):
        return None
    try:
        value = json.loads(line[begin:])
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _keyed(record: dict[str, Any], keys: tuple[str, ...]) -> Any:
    for key in keys:
        if key in record:
            return record[key]
        value: Any = record
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            return value
    return None


def _step(
    line: str, record: dict[str, Any] | None, shape: _Shape, *, has_loss: bool
) -> tuple[str, int, int | None] | None:
    if record is not None:
        named = _keyed(record, shape.step_keys)
        value = _whole(named)
        if value is None and isinstance(named, float):
            return None  # 1e999: the first digits of its text are no step
        if value is not None:
            return "named", value, _whole(_keyed(record, ("total_steps", "max_steps", "total")))
    if shape.step is not None:
        match = shape.step.search(line)
        value = _whole(match[1]) if match and match.re.groups else None
        return None if value is None else ("named", value, None)
    if has_loss or not _MENTIONED.search(line):
        for match in _named(line):
            number = _whole(match[1])
            if number is not None:
                return "named", number, _whole(match[2])
    bar = _BAR.search(line)
    if bar and not _OTHER_BAR.search(line[: bar.start()]):
        return "bar", _scaled(bar[1]), _scaled(bar[2])
    fraction = _FRACTION.match(line) if has_loss else None
    if fraction and (number := _whole(fraction[1])) is not None:
        return "fraction", number, _whole(fraction[2])
    return None


def _named(line: str) -> Iterator[re.Match[str]]:
    yield from _STEP.finditer(line)
    yield from _STEPS.finditer(line)


def _loss(line: str, record: dict[str, Any] | None, shape: _Shape) -> float | None:
    if record is not None:
        return _real(_keyed(record, shape.loss_keys))
    match = (shape.loss or _LOSS).search(line)
    return _real(match[1]) if match and match.re.groups else None


def _moment(line: str, record: dict[str, Any] | None, shape: _Shape) -> Moment | None:
    if record is not None:
        return clock_of(record, shape.time_key)
    if shape.time is not None:
        match = shape.time.search(line)
        return moment_in(match[1] if match and match.re.groups else "")
    return moment_in(line)


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        return int(value) if 0 <= value < MAX_STEP else None
    text = str(value).replace(",", "").replace("_", "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def _real(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _scaled(text: str) -> int:
    factor = {"k": 1000, "M": 1_000_000}.get(text[-1], 1)
    try:
        return round(float(text.rstrip("kM")) * factor)
    except ValueError:
        return 0


def _shorten(line: str) -> str:
    line = line.expandtabs(4).rstrip()
    return (
        line if len(line) <= MAX_SHOWN else f"{line[:MAX_SHOWN]} … [{len(line) - MAX_SHOWN} more characters]"
    )
