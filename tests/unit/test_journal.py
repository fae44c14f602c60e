"""The journal keeps what was done, and no secret."""

from __future__ import annotations

import json
import stat
import threading
from pathlib import Path

import pytest

from hostkit.errors import CannotCreateError
from hostkit.journal import MASK, Journal, masked

SECRETS = [
    "sk-proj-abcdefghijklmnop1234",
    "hf_abcdefghijklmnopqrst",
    "ghp_abcdefghijklmnopqrst",
    "AKIAABCDEFGHIJKLMNOP",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.abc-def",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----",
    "Authorization: Bearer abcdef0123456789",
    "HF_TOKEN=verysecret",
    "WANDB_API_KEY: verysecret",
    "--api-key=verysecret",
    "https://user:verysecret@example.net/x",
    '{"password": "verysecret"}',
]


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_is_known_by_its_shape(text: str) -> None:
    shown = masked(f"before {text} after")
    assert MASK in shown
    assert shown.startswith("before ")
    assert text not in shown and "verysecret" not in shown and "abcdef0123456789" not in shown
    assert masked(shown) == shown


@pytest.mark.parametrize(
    "key", ["password", "HF_TOKEN", "apiKey", "api-key", "AWS_SECRET_ACCESS_KEY", "authorization"]
)
def test_a_secret_is_known_by_its_key(key: str) -> None:
    assert masked({"env": {key: "x", "PATH": "/bin"}}) == {"env": {key: MASK, "PATH": "/bin"}}


def test_the_word_after_a_secret_flag_is_masked() -> None:
    argv = ["serve", "--api-key", "x", "--max-new-tokens", "512", "--seed", "0"]
    assert masked(argv) == ["serve", "--api-key", MASK, "--max-new-tokens", "512", "--seed", "0"]


@pytest.mark.parametrize(
    "value",
    [
        {"max_new_tokens": 512, "tokens": 9, "PWD": "/root", "tokenizer": "abc", "step": 4000},
        "step 4000 tokens: 512 tokens/s 19500 auth: permission denied",
        ["python", "train.py", "--max-tokens", "512"],
        "/workspace/checkpoints/step_4000/checkpoint.pt",
        None,
        True,
    ],
)
def test_what_is_no_secret_stays(value: object) -> None:
    assert masked(value) == value


def test_a_line_is_private_whole_and_readable(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.record("launch", host="ct129", argv=["a\nb", "--token", "x"], path=Path("/x"))
    (entry,) = journal.read()
    assert (entry["event"], entry["host"], entry["argv"]) == ("launch", "ct129", ["a\nb", "--token", MASK])
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600


def test_lines_of_many_writers_never_mix(tmp_path: Path) -> None:
    def write(who: int) -> None:
        journal = Journal(tmp_path / "journal.jsonl")
        for index in range(50):
            journal.record("step", who=who, index=index, text="x" * 5000)

    threads = [threading.Thread(target=write, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = (tmp_path / "journal.jsonl").read_bytes().splitlines()
    assert len(lines) == 200
    seen = [(entry["who"], entry["index"]) for entry in map(json.loads, lines)]
    assert sorted(seen) == [(who, index) for who in range(4) for index in range(50)]


def test_a_cut_line_is_left_out(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.record("one")
    with journal.path.open("ab") as file:
        file.write(b'{"event": "tw')
    assert [entry["event"] for entry in journal.read()] == ["one"]


def test_a_journal_that_cannot_be_written_says_where(tmp_path: Path) -> None:
    with pytest.raises(CannotCreateError, match="missing"):
        Journal(tmp_path / "missing" / "journal.jsonl").record("x")
