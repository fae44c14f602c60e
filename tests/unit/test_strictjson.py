"""Every document that hostkit writes is JSON to every reader."""

from __future__ import annotations

import json
import math

import pytest

from hostkit.strictjson import dumps


def test_numbers_that_are_none_are_null_wherever_they_stand() -> None:
    text = dumps({"loss": math.nan, "rates": [1.5, math.inf, (-math.inf,)], "n": 3})
    assert json.loads(text, parse_constant=pytest.fail) == {
        "loss": None,
        "rates": [1.5, None, [None]],
        "n": 3,
    }
