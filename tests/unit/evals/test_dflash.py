"""The bundled harness: what of it runs, what it needs before anything long, and the command line that it gets."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from hostkit.checkpoints import Contents
from hostkit.errors import ConfigError, DataError
from hostkit.evals.dflash import BUNDLED_PROMPTS, DFlash, imported
from hostkit.evals.request import Sample
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


def preflight(transport, asked):
    contents = Contents(path="/c", complete=True, metadata={"config": {"block_size": 16}})
    harness = DFlash()
    sample = Sample.of(asked, quick=False)
    return harness.preflight(transport, asked, sample, harness.prompts(asked), contents)


def needs(peak=GIB, missing=(), disk=5):
    return {"missing": list(missing), "memory": {"peak_bytes": peak}, "disk": {"needed_bytes": disk}}


def test_what_is_needed_comes_back_and_no_bytecode_is_left_behind():
    transport = host(needs())
    assert preflight(transport, evaluation()).peak_bytes == GIB
    assert transport.asked[0][:3] == ["/usr/bin/python3", "-B", "/root/eval/harness/preflight.py"]


def test_a_memory_limit_below_the_computed_peak_is_told_before_the_job_dies_of_it():
    with pytest.raises(ConfigError) as caught:
        preflight(host(needs(peak=3 * GIB)), evaluation(limits={"memory": "2GiB"}))
    assert "limits.memory is 2.0 GiB" in caught.value.faults[0]
    assert "3.0 GiB" in caught.value.faults[0]


def test_all_that_is_missing_is_told_at_once():
    missing = [{"what": "torch", "why": "not installed", "try": "pip install it"}] * 2
    with pytest.raises(ConfigError, match="2 things are missing") as caught:
        preflight(host(needs(missing=missing)), evaluation())
    assert caught.value.faults[0] == "torch: not installed; pip install it"


@pytest.mark.parametrize("stdout", [b"", b"[]", b"{}", json.dumps(needs(peak=float("inf"))).encode()])
def test_an_answer_that_is_none_is_a_data_error_with_its_last_words(stdout):
    with pytest.raises(DataError, match="no torch") as caught:
        preflight(host(stdout=stdout, exit=1), evaluation())
    assert caught.value.hint


def test_the_command_line_holds_every_setting_as_its_own_word():
    asked = evaluation(thinking=True, max_prompts=3, block_size=8, limits={"cpus": 2})
    harness = DFlash()
    argv = harness.argv(
        asked, Sample.of(asked, quick=False), harness.prompts(asked), checkpoint="/root/eval/a b.pt",
        out="results/result.json", evaluation_id="0" * 16, one_block=False,
    )  # fmt: skip
    assert argv[:3] == ["/usr/bin/python3", "-u", "/root/eval/harness/eval_drafter.py"]
    assert argv[argv.index("--checkpoint") + 1] == "/root/eval/a b.pt"
    for flag, value in {"--block-size": "8", "--max-prompts": "3", "--threads": "2", "--seed": "0"}.items():
        assert argv[argv.index(flag) + 1] == value
    assert "--thinking" in argv and "--smoke" not in argv


def test_only_what_an_evaluation_really_imports_is_of_the_harness():
    names = DFlash().files.names
    assert {"eval_drafter.py", "preflight.py", "dflash/evaluation/run.py", BUNDLED_PROMPTS} <= set(names)
    assert not [name for name in names if name.startswith(("dflash/training/", "dflash/tiny/", "train_"))]


def test_the_files_of_the_harness_are_enough_to_import_it(tmp_path):
    files = DFlash().files
    for name, data in files.data.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    modules = [
        name[:-3].replace("/", ".")
        for name in files.names
        if name.startswith("dflash/") and name.endswith(".py")
    ]
    code = f"import importlib, sys\nfor name in {modules!r}: importlib.import_module(name.removesuffix('.__init__'))"
    code += "\nprint(all(str(sys.argv[1]) in m.__file__ for n, m in sys.modules.items() if n.startswith('dflash')))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout == "True\n"


def test_imports_inside_functions_and_of_names_in_a_package_count(tmp_path):
    (tmp_path / "p").mkdir()
    (tmp_path / "a.py").write_text("def f():\n    from p import b\n")
    for name in ("p/__init__.py", "p/b.py", "p/c.py"):
        (tmp_path / name).write_text("")
    assert imported(tmp_path, "a.py") == ("a.py", "p/__init__.py", "p/b.py")


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
def test_an_event_is_said_in_words(event, words):
    assert DFlash().progress(event) == words
