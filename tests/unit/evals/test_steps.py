"""The steps of an evaluation: what each says of itself when it ends, however it ends."""

from __future__ import annotations

import pytest

from hostkit.errors import DataError
from hostkit.evals.steps import Steps


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyboardInterrupt(), "interrupted"),
        (DataError("the result has no metrics", where="ct129"), "the result has no metrics"),
        (ValueError(), "ValueError"),
    ],
)
def test_a_step_that_fails_says_why_in_words(error: BaseException, words: str) -> None:
    steps = Steps()
    with pytest.raises(type(error)), steps.running("stage"):
        raise error
    assert (steps["stage"].state, steps["stage"].message) == ("failed", words)
