"""A payload's events become words for people, with the rate at which it goes and what it could not do."""

from __future__ import annotations

from typing import Any

import pytest

from hostkit.evals.running import progress_words

REFERENCES = {"event": "progress", "phase": "references", "done": 3, "of": 20}


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (REFERENCES, "references 3/20"),
        ({**REFERENCES, "tokens_per_s": 41.25}, "references 3/20, 41.2 tokens/s"),
        ({**REFERENCES, "missing": "fizzbuzz"}, "references 3/20, fizzbuzz is missing"),
        ({"event": "smoke", "ok": True}, "one block works end to end"),
        ({"event": "smoke", "ok": False}, "one block failed"),
        ({"event": "done", "result": "/x"}, ""),
    ],
)
def test_an_event_is_said_in_words(event: dict[str, Any], words: str) -> None:
    assert progress_words(event) == words
