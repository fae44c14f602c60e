"""Which checkpoints the trainer itself removes at its next save: by what is declared, or by its argv (pure).

hostkit removes none of a run's checkpoints. Where nothing says what the trainer keeps, nothing is foretold.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence

from hostkit.checkpoints.models import Candidate, Value
from hostkit.inventory.models import Checkpoints

PAYLOAD = "train_drafter.py"  # the bundled trainer, whose flags say what it keeps


class Retention(Value):
    """The newest `keep` stay, and every step that is a multiple of `keep_every`."""

    keep: int
    keep_every: int | None = None
    evidence: str

    @property
    def words(self) -> str:
        """Say it in a few words."""
        more = f" and every {self.keep_every}th step" if self.keep_every else ""
        return f"the newest {self.keep}{more} ({self.evidence})"


def retention_of(saved: Checkpoints | None, argv: Sequence[str] = ()) -> Retention | None:
    """Return what the trainer keeps; None where that is not known, or where it keeps all."""
    if saved is not None and saved.keep is not None:
        return Retention(keep=saved.keep, keep_every=saved.keep_every, evidence="declared in the inventory")
    if not any(posixpath.basename(word) == PAYLOAD for word in argv[:4]):
        return None
    keep, every = _number(argv, "--keep"), _number(argv, "--keep-every")
    if not keep:
        return None
    said = f"its argv says --keep {keep}" + (f" --keep-every {every}" if every else "")
    return Retention(keep=keep, keep_every=every or None, evidence=said)


def next_deleted(
    candidates: Iterable[Candidate], retention: Retention, next_step: int | None = None
) -> list[Candidate]:
    """Return what goes once the next checkpoint is saved. `next_step`: its step, else above all that are there.

    Trainers count what is there, whichever attempt left it: one above the next step takes a newer one's place.
    """
    found = sorted(candidates, key=lambda one: one.step)
    steps = {one.step for one in found}
    coming = next_step if next_step is not None and next_step not in steps else max(steps, default=0) + 1
    doomed = set(sorted(steps | {coming})[: -retention.keep])
    return [
        one
        for one in found
        if one.step in doomed and not (retention.keep_every and one.step % retention.keep_every == 0)
    ]


def _number(argv: Sequence[str], flag: str) -> int | None:
    """Return the last number that a flag is given, as argparse takes it."""
    found = None
    for index, word in enumerate(argv):
        name, _, value = word.partition("=")
        if name == flag:
            value = value or (argv[index + 1] if index + 1 < len(argv) else "")
            found = int(value) if value.isascii() and value.isdigit() and len(value) < 16 else found
    return found
