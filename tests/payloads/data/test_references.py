"""References from servers: ids where they are given, the template and flag held against ours, faults named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

import eval_drafter
from dflash.data.api_client import Api, Unanswered
from tests.payloads.reference_server import ReferenceServer, serving

Eval = Callable[..., tuple[int, list[dict[str, Any]], dict[str, Any]]]


@pytest.fixture(scope="module")
def tokenizer(target_folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(str(target_folder), local_files_only=True)


@pytest.fixture
def evaluate(target_folder: Path, drafter_folder: Path, tmp_path: Path, capsys: Any) -> Eval:
    prompts = tmp_path / "chat.jsonl"
    prompts.write_text(
        '{"id": "a", "domain": "x", "prompt": "def f"}\n{"id": "b", "domain": "y", "prompt": "import"}'
    )

    def run(api: str, *more: object) -> tuple[int, list[dict[str, Any]], dict[str, Any]]:
        out = tmp_path / "result.json"
        out.unlink(missing_ok=True)
        argv = [
            "--checkpoint", drafter_folder, "--target", target_folder, "--prompts", prompts, "--work",
            tmp_path / "work", "--out", out, "--max-new-tokens", 30, "--api", api, *more,
        ]  # fmt: skip
        status = eval_drafter.main(list(map(str, argv)))
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return status, lines, json.loads(out.read_text()) if out.exists() else {}

    return run


def test_a_server_that_gives_ids_is_taken_at_its_ids(target: Any, tokenizer: Any, evaluate: Eval) -> None:
    with serving(ReferenceServer(target, tokenizer, gives_ids=True)) as server:
        status, lines, document = evaluate(server.url)
    assert status == 0, lines
    assert document["references"]["source"] == "api"
    assert document["references"]["model"] == "toy"
    assert document["references"]["ids_from"] == {"server": 2}
    assert document["target_agreement"]["rate"] == 1.0
    path, body = server.requests[0]
    assert path == "/v1/chat/completions"
    assert body["temperature"] == 0
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert body["return_token_ids"] is True


def test_a_server_without_ids_is_asked_again_and_its_text_encoded(
    target: Any, tokenizer: Any, evaluate: Eval
) -> None:
    with serving(ReferenceServer(target, tokenizer, gives_ids=False)) as server:
        status, lines, document = evaluate(server.url)
    assert status == 0, lines
    assert document["references"]["ids_from"] == {"reencoded": 2}
    assert any("encoded again" in caveat for caveat in document["caveats"])
    assert "return_token_ids" not in server.requests[-1][1]


def test_another_thinking_flag_on_the_server_is_refused(target: Any, tokenizer: Any, evaluate: Eval) -> None:
    with serving(ReferenceServer(target, tokenizer, gives_ids=True, thinking=True)) as server:
        status, lines, document = evaluate(server.url)
    assert status == 1
    assert document == {}
    assert "our template gives" in lines[-1]["what"]


def test_without_ids_the_agreement_gate_finds_another_model(
    target: Any, tokenizer: Any, evaluate: Eval
) -> None:
    with serving(ReferenceServer(target, tokenizer, gives_ids=False)) as server:
        server.says = "Certainly! Here is a function that does what you ask for."
        status, lines, _ = evaluate(server.url)
    assert status == 1
    assert "reference tokens" in lines[-1]["what"]


def test_a_prompt_that_fails_is_missing_with_its_reason(target: Any, tokenizer: Any, evaluate: Eval) -> None:
    with serving(ReferenceServer(target, tokenizer, gives_ids=True)) as server:
        server.fail_on = {"import"}
        status, lines, document = evaluate(server.url)
        assert status == 0, lines
        assert document["status"] == "partial"
        (missing,) = document["coverage"]["missing"]
        assert missing["prompt"] == "b"
        assert "HTTP 500" in missing["reason"]
        server.fail_on = set()
        status, _, document = evaluate(server.url)
    assert document["status"] == "complete"
    assert sum("messages" in body for _, body in server.requests) == 3


def test_no_server_is_one_clear_error(evaluate: Eval) -> None:
    status, lines, document = evaluate("http://127.0.0.1:9/v1")
    assert status == 1
    assert document == {}
    assert "no answer" in lines[-1]["what"]


def test_a_model_that_is_not_served_is_refused(target: Any, tokenizer: Any, evaluate: Eval) -> None:
    with serving(ReferenceServer(target, tokenizer, gives_ids=True)) as server:
        status, lines, _ = evaluate(server.url, "--api-model", "other")
    assert status == 1
    assert "serves ['toy'], not other" in lines[-1]["what"]


def test_ids_of_another_tokenizer_are_a_reason_and_no_crash(
    target: Any, tokenizer: Any, evaluate: Eval
) -> None:
    with serving(ReferenceServer(target, tokenizer, gives_ids=True)) as server:
        server.appends = [260]
        status, lines, document = evaluate(server.url)
    assert (status, document) == (1, {})
    assert "token 260 is outside the target's vocabulary of 260" in lines[-1]["what"]


def test_nothing_after_the_first_stop_token_is_measured(
    target: Any, tokenizer: Any, evaluate: Eval, tmp_path: Path
) -> None:
    """A server that ignores the end writes on; no decoder would, and the rest would count."""
    with serving(ReferenceServer(target, tokenizer, gives_ids=True)) as server:
        server.appends = [258, 10, 10, 10]
        status, lines, document = evaluate(server.url)
    assert status == 0, lines
    for file in (tmp_path / "work" / "references").iterdir():
        kept = json.loads(file.read_text())
        assert kept["response_ids"].index(258) == len(kept["response_ids"]) - 1
        assert kept["finished"] is True
    assert document["target_agreement"]["of"] == 2 * 27


def test_a_server_that_is_lost_is_not_asked_for_the_rest(
    target: Any,
    tokenizer: Any,
    target_folder: Path,
    drafter_folder: Path,
    tmp_path: Path,
    capsys: Any,
    monkeypatch: Any,
) -> None:
    asked: list[str] = []

    def hangs(self: Any, messages: Any, *_: Any) -> Any:
        asked.append(messages[0]["content"])
        raise Unanswered("http://x: no answer within 600 s")

    monkeypatch.setattr(Api, "chat", hangs)
    prompts = tmp_path / "many.jsonl"
    prompts.write_text("\n".join(json.dumps({"id": str(i), "prompt": f"p{i}"}) for i in range(9)))
    argv = ["--checkpoint", drafter_folder, "--target", target_folder, "--prompts", prompts, "--work", tmp_path / "w",
            "--out", tmp_path / "out.json", "--api", "http://127.0.0.1:9/v1", "--api-model", "toy"]  # fmt: skip
    assert eval_drafter.main(list(map(str, argv))) == 1
    assert asked == ["p0", "p1"]
    assert "no answer within 600 s" in json.loads(capsys.readouterr().out.splitlines()[-1])["what"]
