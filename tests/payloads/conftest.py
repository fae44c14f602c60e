"""Small targets and drafters for the payloads' tests, on one thread; scripts are run as a host runs them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parent / "recorded"
PAYLOADS = Path(__file__).resolve().parents[2] / "remote_payloads"
sys.path.insert(0, str(PAYLOADS))

import torch  # noqa: E402 - the payloads are importable from here on

torch.set_num_threads(1)


class Script:
    """Runs a payload script in its own process and reads its JSON lines."""

    def __init__(self, name: str, *argv: object) -> None:
        self.argv = [sys.executable, str(PAYLOADS / name), *map(str, argv)]
        self.env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"HF_HUB_OFFLINE": "1"}

    def run(self, timeout: float = 170) -> tuple[int, list[dict[str, Any]], str]:
        done = subprocess.run(self.argv, capture_output=True, text=True, timeout=timeout, env=self.env)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return done.returncode, lines, done.stderr

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=self.env
        )


@pytest.fixture(scope="session")
def script() -> type[Script]:
    return Script


@pytest.fixture(scope="session")
def fixture_a() -> Path:
    """The recorded parity fixture A: a small trained target and its drafter."""
    return DATA / "parity" / "A"


@pytest.fixture(scope="session")
def target_folder(fixture_a: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained target of fixture A with a byte tokenizer beside it, as a host would have it."""
    from dflash.tiny import byte_tokenizer

    folder = tmp_path_factory.mktemp("models") / "target"
    shutil.copytree(fixture_a / "target", folder)
    byte_tokenizer.save(folder)
    return folder


@pytest.fixture(scope="session")
def target(target_folder: Path) -> Any:
    from dflash.target.model import Target

    return Target.load(target_folder, torch.float32)


@pytest.fixture(scope="session")
def drafter_folder(fixture_a: Path) -> Path:
    return fixture_a / "drafter"


@pytest.fixture(scope="session")
def drafter(drafter_folder: Path) -> Any:
    from dflash.drafter.loading import load_drafter

    return load_drafter(drafter_folder).drafter


@pytest.fixture(scope="session")
def samples_file(target: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixteen responses that the target sampled, as training data."""
    from dflash.data import samples
    from dflash.tiny.stdlib_corpus import split
    from dflash.training.sampling import sample_responses

    text = b"\n".join(split()[0][:20])
    prompts = [list(text[at : at + 16]) for at in range(0, 16 * 900, 900)]
    file = tmp_path_factory.mktemp("data") / "samples.jsonl"
    samples.write(file, sample_responses(target, prompts, 32, temperature=0.7, seed=0))
    return file


@pytest.fixture(scope="session")
def sampled_prompts(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Makes references that a target samples at 0.7 after held-out text: greedy ones of tiny targets loop."""

    def make(folder: Path) -> Path:
        from dflash.target.model import Target
        from dflash.tiny.stdlib_corpus import split
        from dflash.training.sampling import sample_responses

        text = b"\n".join(split()[1])
        prompts = [list(text[at : at + 32]) for at in range(500, 500 + 32 * 3000, 3000)]
        sampled = sample_responses(Target.load(folder, torch.float32), prompts, 96, temperature=0.7, seed=9)
        file = tmp_path_factory.mktemp("sampled") / "prompts.jsonl"
        lines = [
            {"id": s.id, "domain": "code", "prompt_ids": s.input_ids[:32], "response_ids": s.input_ids[32:]}
            for s in sampled
        ]
        file.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
        return file

    return make


@pytest.fixture(scope="session")
def small_config() -> Any:
    """A drafter config that fits no real target: two full layers, GQA, block of 6."""
    from dflash.drafter.config import DraftConfig

    return DraftConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        vocab_size=40,
        block_size=6,
        mask_token_id=39,
        target_layer_ids=(0, 2),
        num_target_layers=5,
        rope_theta=1e5,
    )


@pytest.fixture
def prompts_file(tmp_path: Path) -> Path:
    """Plain text of two domains, as the trained target has seen some of."""
    from dflash.tiny.stdlib_corpus import split

    texts = [t.decode("utf-8", "replace") for t in split()[1]]
    entries = [
        {"id": f"held-{i}", "domain": "code" if i % 2 else "prose", "text": text[600 + i : 648 + i]}
        for i, text in enumerate(texts[:4])
    ]
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(map(json.dumps, entries)) + "\n", encoding="utf-8")
    return file
