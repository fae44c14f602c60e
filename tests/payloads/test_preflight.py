"""The preflight says everything that is missing at once, and its memory figure is on the safe side."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import eval_drafter
import preflight
from dflash.data import prompts
from dflash.errors import Refused
from dflash.evaluation import memory
from dflash.target.identity import identify
from tests.payloads.conftest import PAYLOADS

Look = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def look(target_folder: Path, drafter_folder: Path, prompts_file: Path, tmp_path: Path, capsys: Any) -> Look:
    def run(**change: object) -> tuple[int, dict[str, Any]]:
        flags = {
            "checkpoint": drafter_folder,
            "target": target_folder,
            "prompts": prompts_file,
            "work": tmp_path / "work",
            "out": tmp_path / "result.json",
            "max-new-tokens": 40,
            **change,
        }
        argv = [str(part) for name, value in flags.items() for part in ("--" + name, value)]
        status = preflight.main(argv)
        return status, json.loads(capsys.readouterr().out)

    return run


def test_nothing_is_missing_where_all_is_there(look: Look) -> None:
    status, document = look()
    assert status == 0
    assert document["schema"] == "hostkit.preflight/1"
    assert document["missing"] == []
    assert document["references"] == {"cached": 0, "of": 4, "source": "target"}
    assert document["memory"]["peak_bytes"] > sum(
        document["memory"]["parts"][k] for k in ("base", "target_weights")
    )
    assert document["packages"]["torch"]
    assert document["drafter"]["block_size"] == 8


def test_what_is_cached_is_counted_and_needs_no_target(
    look: Look, target_folder: Path, drafter_folder: Path, prompts_file: Path, tmp_path: Path, capsys: Any
) -> None:
    before = look()[1]
    argv = ["--checkpoint", drafter_folder, "--target", target_folder, "--prompts", prompts_file, "--work"]
    argv += [tmp_path / "work", "--out", tmp_path / "r.json", "--max-new-tokens", 40, "--max-prompts", 2]
    assert eval_drafter.main(list(map(str, argv))) == 0
    capsys.readouterr()
    half = look()[1]
    assert half["references"]["cached"] == half["features"]["cached"] == 2
    assert half["disk"]["needed_bytes"] < before["disk"]["needed_bytes"]
    whole = look(**{"max-prompts": 2})[1]
    assert "target_weights" not in whole["memory"]["parts"]
    assert whole["memory"]["peak_bytes"] < before["memory"]["peak_bytes"]


def test_everything_that_is_missing_stands_in_one_list(
    look: Look, target_folder: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    broken = tmp_path / "target"
    shutil.copytree(target_folder, broken)
    for name in ("tokenizer.json", "chat_template.jinja"):
        (broken / name).unlink()
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    chat = tmp_path / "chat.jsonl"
    chat.write_text('{"id": "a", "prompt": "hi"}\n')
    monkeypatch.setattr(preflight, "PACKAGES", {"torch": "99", "no_such_package": "1"})
    monkeypatch.setattr(preflight, "_available", lambda: 1 << 20)
    monkeypatch.setattr(preflight, "_free", lambda folder: 10)
    status, document = look(
        target=broken, prompts=chat, checkpoint=tmp_path / "none.pt", api="http://127.0.0.1:9"
    )
    assert status == 1
    assert [entry["what"] for entry in document["missing"]] == [
        "package torch 99",
        "package no_such_package",
        "tokenizer",
        "chat template",
        "target weights",
        "checkpoint",
        "reference server",
    ]
    assert all(entry["why"] and entry["try"] for entry in document["missing"])
    status, document = look()
    assert {"memory", "disk"} <= {entry["what"] for entry in document["missing"]}


def test_it_imports_nothing_but_the_standard_library(tmp_path: Path) -> None:
    argv = [
        sys.executable,
        "-S",
        "-I",
        "-c",
        f"import sys; sys.path.insert(0, {str(PAYLOADS)!r}); import preflight",
    ]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_wrong_flag_value_is_one_entry(look: Look) -> None:
    status, document = look(ddtree="four")
    assert status == 1
    assert document["missing"][0]["what"] == "command line"


def test_the_27b_targets_figures_are_those_of_its_shape() -> None:
    """Qwen3.6-27B in bf16 is 55.6 GB; with all features cached the target is not needed."""
    shape = memory.Shape(5120, 17408, 64, 4 * 256, 248320)
    common: dict[str, Any] = {
        "target_elements": 27_800_000_000,
        "drafter_bytes": 3_460_000_000,
        "size": 2,
        "feature_width": 5 * 5120,
        "longest": 700,
        "budgets": [64],
        "block_size": 16,
    }
    full = memory.peak(memory.memory_parts(shape, target_needed=True, **common))
    cached = memory.peak(memory.memory_parts(shape, target_needed=False, **common))
    assert 60e9 < full < 64e9
    assert cached < 8e9


def test_a_header_that_does_not_reach_the_end_is_found(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    head = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    file.write_bytes(struct.pack("<Q", len(head)) + head + b"\0" * 8)
    assert memory.header(file)["a"]["shape"] == [2]
    file.write_bytes(file.read_bytes() + b"\0")
    with pytest.raises(ValueError, match="its header says"):
        memory.header(file)


def test_a_copied_target_has_the_same_identity_and_a_changed_one_has_not(
    target_folder: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "elsewhere"
    shutil.copytree(target_folder, copy)
    assert identify(copy)["fingerprint"] == identify(target_folder)["fingerprint"]
    (copy / "chat_template.jinja").write_text("{{ messages }}")
    changed = identify(copy)
    assert changed["fingerprint"] != identify(target_folder)["fingerprint"]
    assert changed["vocab_sha256"] == identify(target_folder)["vocab_sha256"]


def test_bundled_prompts_are_ten_of_code_and_ten_of_three_other_domains() -> None:
    bundled = prompts.read(prompts.BUNDLED)
    domains = [p.domain for p in bundled]
    assert domains.count("code") == 10
    assert len(bundled) == 20
    assert len(set(domains)) == 4
    assert {"fizzbuzz", "binary_search", "linked_list_reverse"} <= {p.id for p in bundled}


def test_a_small_choice_takes_turns_over_the_domains() -> None:
    bundled = prompts.read(prompts.BUNDLED)
    four, nine = prompts.choose(bundled, 4), prompts.choose(bundled, 9)
    assert len({p.domain for p in four}) == 4
    assert nine[:4] == four


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "x.jsonl:1: not JSON"),
        ("[1]", "not a JSON object"),
        ('{"id": 1}', "needs one of prompt"),
        ('{"id": 1, "prompt": "a"}\n{"id": 1, "prompt": "b"}', "id '1' is used twice"),
        ("\n", "holds no prompt"),
        ("", "holds no prompt"),
        ('{"prompt": 5}', "not text"),
        ('{"prompt": ""}', "not text"),
        ('{"prompt": null}', "not text"),
        ('{"messages": "hello"}', "not text"),
        ('{"messages": [{"role": "user"}]}', "not text"),
        ('{"messages": []}', "not text"),
        ('{"text": ["a"]}', "not a text"),
        ('{"text": "a", "id": [1]}', "id is .1."),
        ('{"text": "a", "prompt": "b"}', "needs one of"),
        ('{"prompt_ids": [1], "response_ids": ["a"]}', "lists of token ids"),
        ('{"prompt_ids": [1]}', "lists of token ids"),
        ('{"text": "a"}\n{"text": "\\ud800"}', "x.jsonl:2: holds half of a surrogate pair"),
        ('{"text": "a"}\n{"text": "\udcff"}', "x.jsonl:2: not UTF-8 .byte 11"),
        ("[" * 100_000, "x.jsonl:1: not JSON"),
    ],
)
def test_a_wrong_prompts_file_is_refused_at_its_line(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "x.jsonl"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(Refused, match=named):
        prompts.read(file)


def test_a_prompts_file_may_come_from_any_editor(tmp_path: Path) -> None:
    """A byte order mark, CRLF, blank lines, separators inside strings, a line of megabytes, no last line feed."""
    file = tmp_path / "x.jsonl"
    lines = [
        '{"id": 7, "text": "a\u2028b\x85c"}',
        "",
        "   ",
        '{"domain": "d", "text": "%s"}' % ("x" * 3_000_000),
    ]
    file.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    one, two = prompts.read(file)
    assert (one.id, one.text) == ("7", "a\u2028b\x85c")
    assert (two.id, two.domain, len(two.text)) == ("4", "d", 3_000_000)


def test_many_prompts_are_read_in_time_that_grows_with_them(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text("".join(f'{{"id": {i}, "text": "a"}}\n' for i in range(30_000)))
    assert len(prompts.read(file)) == 30_000


@pytest.mark.parametrize("make", [Path.mkdir, None])
def test_a_prompts_file_that_is_no_file_is_refused(tmp_path: Path, make: Any) -> None:
    if make:
        make(tmp_path / "x.jsonl")
    with pytest.raises(Refused, match=r"x\.jsonl: (cannot be read|no such file)"):
        prompts.read(tmp_path / "x.jsonl")


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", ["[]", "{", ""])
def test_a_damaged_file_of_the_target_is_named(
    look: Look, target_folder: Path, tmp_path: Path, name: str, content: str
) -> None:
    folder = tmp_path / "target"
    shutil.copytree(target_folder, folder)
    (folder / "chat_template.jinja").unlink()
    (folder / name).write_text(content)
    status, document = look(target=folder)
    assert status == 1
    assert [m["why"] for m in document["missing"] if name in m["why"]]
