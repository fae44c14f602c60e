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


@pytest.mark.report("i1", "i3")
@pytest.mark.parametrize("mean", ["NaN", "nan", "-inf", "Infinity"])
def test_a_number_that_is_none_and_written_as_a_text_is_none_too(mean: str):
    sample = document({"p": [1]}, metrics__ppl={"mean": mean, "n": 1, "interval": [1.0, float("inf")]})
    ppl = parse(json.dumps(sample).encode(), where="x").metrics["ppl"]
    assert (ppl.mean, ppl.reason, ppl.interval) == (None, f"not a number ({mean})", None)


@pytest.mark.report("i5")
@pytest.mark.parametrize(
    "changes",
    [
        {"coverage__prompts_done": 9},
        {"coverage__prompts_done": -1},
        {"coverage__prompts_done": "1"},
        {"coverage__prompts_done": True},
        {"checkpoint__step": "4000"},
        {"checkpoint__step": -1},
        {"status": "done"},
        {"metrics__accept_len": {"mean": True, "n": 3}},
        {"metrics__accept_len": {"mean": 1.0, "n": -3}},
        {"per_prompt": [{"id": "p", "blocks": []}] * 2},
        {"per_prompt": [{"id": "p", "blocks": [{"anchor": 1, "accept_len": -1}]}]},
    ],
    ids=str,
)
def test_counts_that_cannot_be_are_no_result(changes):
    with pytest.raises(DataError, match="faults"):
        parse(json.dumps(document({"p": [1]}, **changes)).encode(), where="x")


def test_a_key_that_stands_twice_and_nesting_without_end_are_told():
    twice = json.dumps(document({"p": [1]}))[:-1] + ', "status": "failed"}'
    with pytest.raises(DataError, match="'status' stands twice"):
        parse(twice.encode(), where="x")
    with pytest.raises(DataError, match="nested too deeply"):
        parse(b'{"x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", where="x")


def test_half_a_character_in_a_path_is_kept_in_strict_json():
    sample = document({"p": [1]}, checkpoint__path="/c/\udcff\ud800")
    read = parse(json.dumps(sample).encode(), where="x")
    assert json.loads(dump(read.document()).decode("utf-8"))["checkpoint"]["path"] == "/c/\udcff\ud800"


def test_keys_of_a_newer_writer_are_kept():
    sample = document({"p": [1]}) | {"novelty": {"a": 1}}
    assert parse(json.dumps(sample).encode(), where="x").document()["novelty"] == {"a": 1}
