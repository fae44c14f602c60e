"""Results are read tolerantly and written strictly."""

from __future__ import annotations

import json

import pytest

from hostkit.errors import DataError
from hostkit.evals.results import dump, parse

from .samples import document


@pytest.mark.report("i1")
def test_bare_nan_and_infinity_are_read_and_written_as_null_with_the_reason():
    sample = document({"p": [1, 2]})
    sample["metrics"]["loss"] = {"mean": float("nan"), "n": 2}
    sample["metrics"]["ppl"] = {"mean": float("inf"), "n": 2}
    read = parse(json.dumps(sample).encode(), where="result.json")
    assert read.metrics["loss"].mean is None
    assert read.metrics["loss"].reason == "not a number (nan)"
    assert read.metrics["accept_len"].mean == 1.5
    written = dump(read.document())
    assert b"NaN" not in written and b"Infinity" not in written
    assert json.loads(written, parse_constant=pytest.fail)["metrics"]["ppl"]["mean"] is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"schema": "hostkit.eval-result/2"}',
        b'{"schema": "hostkit.eval-result/1"}',
    ],
    ids=["empty", "cut", "a list", "no UTF-8", "another version", "no fields"],
)
def test_what_is_no_result_is_a_data_error_that_names_the_file(data):
    with pytest.raises(DataError) as caught:
        parse(data, where="/some/result.json")
    assert caught.value.where == "/some/result.json"


def test_keys_of_a_newer_writer_are_kept():
    sample = document({"p": [1]}) | {"novelty": {"a": 1}}
    assert parse(json.dumps(sample).encode(), where="x").document()["novelty"] == {"a": 1}
