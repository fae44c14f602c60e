"""The one error of the payloads: what was refused, and what to try instead. Standard library only, Python 3.8."""

from __future__ import annotations


class Refused(Exception):  # noqa: N818 - reads as what happened
    """Something is not as it must be; `what` names it, `hint` says what to do. Ends an entry point with 1."""

    def __init__(self, what: str, hint: str | None = None) -> None:
        super().__init__(f"{what} ({hint})" if hint else what)
        self.what = what
        self.hint = hint
