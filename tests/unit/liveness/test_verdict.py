"""A verdict owns its exit code and phrase; documents hold its name."""

import json

import pytest

from hostkit.liveness.verdict import Verdict, worst


@pytest.mark.parametrize("verdict", Verdict)
def test_each_verdict_has_an_exit_code_and_a_phrase_and_is_its_name(verdict: Verdict) -> None:
    assert verdict.exit in (0, 1, 2, 3)
    assert verdict.phrase
    assert json.dumps(verdict) == f'"{verdict.name}"'
    assert Verdict(verdict.name) is verdict


@pytest.mark.parametrize(("exits", "code"), [([0, 0], 0), ([0, 1], 1), ([1, 3], 3), ([3, 2, 1], 2)])
def test_two_goes_before_three_and_three_before_one(exits: list[int], code: int) -> None:
    assert worst(exits) == code
