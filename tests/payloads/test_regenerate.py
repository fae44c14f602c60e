"""Training responses come from the server, a line each, and an interrupted run goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

import regenerate
from dflash.data import samples
from tests.payloads.reference_server import ReferenceServer, serving

Regenerate = Callable[..., tuple[int, list[dict[str, Any]]]]


@pytest.fixture
def run(target_folder: Path, tmp_path: Path, capsys: Any) -> Regenerate:
    prompts = [{"id": f"p{i}", "prompt": f"def f{i}(x):"} for i in range(5)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, prompts)))

    def start(url: str) -> tuple[int, list[dict[str, Any]]]:
        argv = [
            "--api", url, "--target", target_folder, "--prompts", tmp_path / "prompts.jsonl",
            "--out", tmp_path / "out.jsonl", "--max-new-tokens", 12, "--concurrency", 2,
        ]  # fmt: skip
        status = regenerate.main(list(map(str, argv)))
        return status, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return start


@pytest.fixture(scope="module")
def tokenizer(target_folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(str(target_folder), local_files_only=True)


def test_every_prompt_gets_a_line_that_trains(
    target: Any, tokenizer: Any, run: Regenerate, tmp_path: Path
) -> None:
    with serving(ReferenceServer(target, tokenizer, gives_ids=True)) as server:
        status, lines = run(server.url)
    assert status == 0
    assert lines[-1]["reencoded"] == 0
    read = samples.read(tmp_path / "out.jsonl", tokenizer, 500)
    assert {s.id for s in read} == {f"p{i}" for i in range(5)}
    assert all(sum(s.supervised) == 12 for s in read)


def test_it_goes_on_after_a_cut_line_and_asks_nothing_twice(
    target: Any, tokenizer: Any, run: Regenerate, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    with serving(ReferenceServer(target, tokenizer, gives_ids=True)) as server:
        run(server.url)
        whole = out.read_text().splitlines(keepends=True)
        out.write_text("".join(whole[:3]) + whole[3][:20])
        server.requests.clear()
        status, _ = run(server.url)
        asked = len(server.requests)
    assert status == 0
    assert asked == 2
    assert sorted(json.loads(line)["id"] for line in out.read_text().splitlines()) == [
        f"p{i}" for i in range(5)
    ]


def test_prompts_that_fail_are_named_and_left_for_the_next_run(
    target: Any, tokenizer: Any, run: Regenerate, tmp_path: Path
) -> None:
    with serving(ReferenceServer(target, tokenizer, gives_ids=True)) as server:
        server.fail_on = {"f2"}
        status, lines = run(server.url)
        assert status == 1
        assert [entry["prompt"] for entry in lines[-1]["failed"]] == ["p2"]
        server.fail_on = set()
        assert run(server.url)[0] == 0
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 5


def test_a_file_of_something_else_is_not_appended_to(run: Regenerate, tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_text("notes\n")
    status, lines = run("http://127.0.0.1:9/v1")
    assert status == 1
    assert "not a line of this program" in lines[-1]["what"]


def test_a_lost_server_ends_the_run_and_not_every_prompt_is_asked_of_it(
    target: Any, tokenizer: Any, run: Regenerate, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(regenerate, "LOST", 2)
    prompts = [{"id": f"p{i}", "prompt": f"def f{i}(x):"} for i in range(40)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, prompts)))
    with serving(ReferenceServer(target, tokenizer, gives_ids=True)) as server:
        server.fail_on = {"def"}
        status, lines = run(server.url)
        assert status == 1
        assert "2 answers in a row failed" in lines[-1]["what"]
        assert len(server.requests) < 40
        server.fail_on = set()
        assert run(server.url)[0] == 0
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 40


def test_an_answer_that_a_dying_server_broke_off_is_not_kept(
    target: Any, tokenizer: Any, run: Regenerate, tmp_path: Path
) -> None:
    with serving(ReferenceServer(target, tokenizer, gives_ids=True)) as server:
        server.finish_reason = "abort"
        status, lines = run(server.url)
    assert status == 1
    assert "broke the answer off" in lines[-1]["what"]
    assert (tmp_path / "out.jsonl").read_text() == ""


def test_no_seed_is_sent_that_was_not_given(target: Any, tokenizer: Any, run: Regenerate) -> None:
    with serving(ReferenceServer(target, tokenizer, gives_ids=True)) as server:
        run(server.url)
        assert [body for _, body in server.requests if "seed" in body] == []
        assert len(server.requests) == 5


def test_two_runs_do_not_write_one_file(run: Regenerate, tmp_path: Path) -> None:
    import fcntl

    with (tmp_path / "out.jsonl").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        status, lines = run("http://127.0.0.1:9/v1")
    assert status == 1
    assert "another regenerate.py is writing it" in lines[-1]["what"]
