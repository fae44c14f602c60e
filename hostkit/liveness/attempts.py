"""To which attempt of its run a checkpoint belongs, with the evidence; unknown where there is none (pure).

An attempt is one process of the run, from its start to its end. What was written since the live one began is its own.
What it resumed from is known only where its argv or its log says so.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from typing import Literal

from hostkit.checkpoints.choosing import beyond, predates
from hostkit.checkpoints.models import Candidate, Value
from hostkit.inventory.models import Log
from hostkit.liveness.logs import parse

Word = Literal["live", "resumed-from", "earlier", "unknown"]

_FLAG = re.compile(r"--?[\w-]*(?:resum|restor|load|init|ckpt|checkpoint|from|continu)[\w-]*", re.IGNORECASE)
_RESUMED = re.compile(r"\b(?:resum|restor|continu)\w*", re.IGNORECASE)
_LOADED = re.compile(r"\b(?:resum|restor|continu|load)\w*", re.IGNORECASE)
_STEP = re.compile(r"\b(?:global[_ ]?)?(?:step|iteration|iter)s?[\"']?[\s_:=#]*(\d{1,15})\b", re.IGNORECASE)
_QUOTED = 120  # characters of a line that stands as evidence


class Attempt(Value):
    """The attempt that a checkpoint belongs to, and what says so."""

    word: Word
    evidence: str


class Resumed(Value):
    """What the live attempt resumed from, and what says so."""

    step: int
    path: str | None = None  # where the very path is named
    evidence: str

    def means(self, one: Candidate) -> bool:
        """Whether this is the checkpoint."""
        return one.path == self.path if self.path is not None else one.step == self.step


def attempt_of(
    one: Candidate, *, started_ns: int | None, live_step: int | None, resumed: Resumed | None
) -> Attempt:
    """Return the attempt of one checkpoint. `started_ns`: when the live process began, by the files' clock.

    `live_step`: how far that one may be at most.
    """
    if started_ns is None:
        return Attempt(
            word="unknown", evidence="no live process is known for certain, so attempts cannot be told apart"
        )
    if one.mtime_ns is None:
        return Attempt(word="unknown", evidence="it is not known when it was written")
    above = beyond(one, live_step)
    if not predates(one, started_ns):
        if above:
            what = (
                f"written since the live process began, yet above its step {live_step}: copied there, perhaps"
            )
            return Attempt(word="unknown", evidence=what)
        return Attempt(word="live", evidence="written since the live process began")
    if resumed is not None and resumed.means(one):
        return Attempt(word="resumed-from", evidence=resumed.evidence)
    what = "written before the live process began"
    if above:
        what += f", and above its step {live_step}"
    elif resumed is None:
        what += "; whether that resumed from it is not known"
    return Attempt(word="earlier", evidence=what)


def resumed_from(
    candidates: Iterable[Candidate],
    *,
    root: str | None,
    argv: Sequence[str] = (),
    cwd: str | None = None,
    lines: Sequence[str] = (),
    log: Log | None = None,
    live_step: int | None = None,
) -> Resumed | None:
    """Return what the live process resumed from, where its argv or its log names it without a doubt.

    `lines`: of its log, the oldest first. They count only while a step of this very attempt is known (`live_step`).
    """
    found = list(candidates)
    return _by_argv(found, root, argv, cwd) or (
        _by_log(found, root, lines, log or Log()) if live_step is not None else None
    )


def _places(one: Candidate, root: str | None) -> set[str]:
    """Return the paths that mean one checkpoint: its own, and its folder's where that is not the root of all."""
    folder = posixpath.dirname(one.path)
    return {one.path} | ({folder} if root is not None and folder != root.rstrip("/") else set())


def _by_argv(
    found: list[Candidate], root: str | None, argv: Sequence[str], cwd: str | None
) -> Resumed | None:
    before = ""
    for word in argv:
        flag, _, value = word.partition("=") if word.startswith("-") else (before, "", word)
        before = flag if word.startswith("-") else ""
        if not value or not _FLAG.fullmatch(flag):
            continue
        path = posixpath.normpath(posixpath.join(cwd or "/", value))
        named = [one for one in found if path in _places(one, root)]
        if len(named) == 1:
            said = f"its argv says {flag} {value}"
            return Resumed(step=named[0].step, path=named[0].path, evidence=said[:_QUOTED])
    return None


def _by_log(found: list[Candidate], root: str | None, lines: Sequence[str], log: Log) -> Resumed | None:
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number]
        if not _LOADED.search(line):
            continue
        named = [one for one in found if any(_names(line, place) for place in _places(one, root))]
        step = _STEP.search(line) if _RESUMED.search(line) else None
        if len(named) != 1 and step is None:
            continue
        begun = named[0].step if len(named) == 1 else int(step[1]) if step else 0
        if not _goes_on(lines[number + 1 :], begun, log):
            return None  # another attempt began after that line
        path = named[0].path if len(named) == 1 else None
        return Resumed(step=begun, path=path, evidence=f"its log says: {line.strip()[:_QUOTED]}")
    return None


def _names(line: str, place: str) -> bool:
    return re.search(re.escape(place) + r"(?![\w.-]|/\w*step)", line) is not None


def _goes_on(lines: Sequence[str], begun: int, log: Log) -> bool:
    """Whether the steps that follow are of one attempt that began there."""
    last = begun
    for line in lines:
        step = parse(line, log).step
        if step is not None:
            if step < last:
                return False
            last = step
    return True
