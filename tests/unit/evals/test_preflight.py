"""Everything that is missing is told in one list, before anything long."""

from __future__ import annotations

import json

import pytest

from hostkit.errors import ConfigError, DataError
from hostkit.evals.preflight import preflight
from hostkit.inventory.models import Eval
from hostkit.transport.base import Completed
from hostkit.transport.fake import FakeTransport

GIB = 2**30


def evaluation(**more):
    return Eval.model_validate(
        {
            "run": "drafter",
            "host": "ct129",
            "workspace": "/root/eval",
            "python": "/usr/bin/python3",
            "target": {"model": "/models/t"},
        }
        | more
    )


def host(document=None, *, exit=0, stdout=None):
    data = json.dumps(document).encode() if stdout is None else stdout
    return FakeTransport("ct129", lambda argv, _stdin: Completed(tuple(argv), exit, data, b"no torch"))


def needs(peak=GIB, missing=(), disk=5):
    return {"missing": list(missing), "memory": {"peak_bytes": peak}, "disk": {"needed_bytes": disk}}


def test_what_is_needed_comes_back_and_no_bytecode_is_left_behind():
    transport = host(needs())
    assert preflight(transport, evaluation(), ["--seed", "0"], {}).peak_bytes == GIB
    assert transport.asked[0][:3] == ["/usr/bin/python3", "-B", "/root/eval/harness/preflight.py"]


def test_a_memory_limit_below_the_computed_peak_is_told_before_the_job_dies_of_it():
    with pytest.raises(ConfigError) as caught:
        preflight(host(needs(peak=3 * GIB)), evaluation(limits={"memory": "2GiB"}), [], {})
    assert "limits.memory is 2.0 GiB" in caught.value.faults[0]
    assert "3.0 GiB" in caught.value.faults[0]


def test_all_that_is_missing_is_told_at_once():
    missing = [{"what": "torch", "why": "not installed", "try": "pip install it"}] * 2
    with pytest.raises(ConfigError, match="2 things are missing") as caught:
        preflight(host(needs(missing=missing)), evaluation(), [], {})
    assert caught.value.faults[0] == "torch: not installed; pip install it"


@pytest.mark.parametrize("stdout", [b"", b"[]", b"{}", json.dumps(needs(peak=float("inf"))).encode()])
def test_an_answer_that_is_none_is_a_data_error_with_its_last_words(stdout):
    with pytest.raises(DataError, match="no torch") as caught:
        preflight(host(stdout=stdout, exit=1), evaluation(), [], {})
    assert caught.value.hint
