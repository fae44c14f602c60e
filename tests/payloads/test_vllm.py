"""The payloads against vLLM itself, its CPU build: by hand, HOSTKIT_VLLM_PYTHON names the interpreter that has it.

HOSTKIT_VLLM_PYTHON=VENV/bin/python python -m pytest tests/payloads/test_vllm.py -m soak
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

READY, PATIENCE = "Application startup complete", 300.0


@dataclass
class Served:
    """A tiny target, an untrained drafter for it, and the server that has the target."""

    url: str
    target: Path
    checkpoint: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, script: Any) -> Iterator[Served]:
    python = os.environ.get("HOSTKIT_VLLM_PYTHON")
    if not python:
        pytest.fail(
            "HOSTKIT_VLLM_PYTHON names no interpreter; remote_payloads/README.md says how to make one"
        )
    folder = tmp_path_factory.mktemp("vllm")
    target, run = folder / "target", folder / "run"
    # Heads of 32: vLLM's attention on the CPU knows no others this small.
    status, lines, _ = script("make_tiny_target.py", "--out", target, "--hidden", 128, "--steps", 150).run(
        600
    )
    assert status == 0, lines[-1]
    flags = ["--recipe", "tiny", "--steps", 1, "--pool", 8, "--batch", 2, "--threads", 1]
    status, lines, _ = script("train_drafter.py", "--target", target, "--out", run, *flags).run(600)
    assert status == 0, lines[-1]
    port = free_port()
    with Vllm(python, target, port):
        yield Served(f"http://127.0.0.1:{port}/v1", target, run / "step_1")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Vllm:
    """Run the server until its own words say that it is ready; end it by its process group, which is ours."""

    def __init__(self, python: str, target: Path, port: int) -> None:
        self.argv = [
            python, "-m", "vllm.entrypoints.cli.main", "serve", str(target), "--served-model-name", "tiny",
            "--host", "127.0.0.1", "--port", str(port), "--enforce-eager", "--dtype", "float32",
            "--max-model-len", "2048",
        ]  # fmt: skip
        self.env = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_NO_USAGE_STATS": "1",
            "OMP_NUM_THREADS": "1",
        }
        self.ready = threading.Event()
        self.said: list[str] = []

    def __enter__(self) -> None:
        self.process = subprocess.Popen(
            self.argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self.env,
            start_new_session=True, errors="replace",
        )  # fmt: skip
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.ready.wait(PATIENCE)
        if self.process.poll() is not None or not any(READY in line for line in self.said):
            self.__exit__()
            pytest.fail("vLLM did not come up:\n" + "".join(self.said[-30:]))

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            if READY in line:
                self.ready.set()
        self.ready.set()

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.reader.join(30)
        assert self.process.stdout is not None
        self.process.stdout.close()


def evaluate(script: Any, served: Served, folder: Path, *more: object) -> tuple[int, list[dict[str, Any]]]:
    status, lines, _ = script(
        "eval_drafter.py", "--checkpoint", served.checkpoint, "--target", served.target, "--work", folder / "work",
        "--out", folder / "result.json", "--api", served.url, "--max-new-tokens", 64, "--dtype", "float32",
        "--threads", 1, *more,
    ).run(600)  # fmt: skip
    return status, lines


@pytest.mark.parametrize("thinking", [False, True])
def test_its_answers_are_the_targets_own_token_by_token(
    served: Served, script: Any, tmp_path: Path, thinking: bool
) -> None:
    status, lines = evaluate(script, served, tmp_path, *(["--thinking"] if thinking else []))
    assert status == 0, lines[-1]
    document = json.loads((tmp_path / "result.json").read_text())
    print(document["target_agreement"], document["coverage"])
    assert document["status"] == "complete"
    assert document["references"]["ids_from"] == {"server": 20}
    assert (document["references"]["source"], document["references"]["model"]) == ("api", "tiny")
    assert document["target_agreement"]["rate"] > 0.99
    assert not any("encoded again" in caveat for caveat in document["caveats"])


def test_plain_text_is_continued_from_its_ids(served: Served, script: Any, tmp_path: Path) -> None:
    texts = ["def read(self, name):\n", "import os\n\nclass "]
    prompts = [{"id": f"t{i}", "domain": "text", "text": text} for i, text in enumerate(texts)]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, prompts)))
    status, lines = evaluate(script, served, tmp_path, "--prompts", tmp_path / "p.jsonl")
    assert status == 0, lines[-1]
    document = json.loads((tmp_path / "result.json").read_text())
    assert document["references"]["ids_from"] == {"server": 2}
    assert document["target_agreement"]["rate"] > 0.99


def test_another_template_than_the_servers_is_noticed_by_the_prompts_ids(
    served: Served, script: Any, tmp_path: Path
) -> None:
    other = tmp_path / "target"
    shutil.copytree(served.target, other)
    template = other / "chat_template.jinja"
    template.write_text(template.read_text() + "Sure:")
    status, lines, _ = script(
        "eval_drafter.py", "--checkpoint", served.checkpoint, "--target", other, "--work", tmp_path / "work",
        "--out", tmp_path / "result.json", "--api", served.url, "--max-prompts", 2, "--max-new-tokens", 32,
    ).run(300)  # fmt: skip
    assert status == 1
    assert "the server reads" in lines[-1]["what"]
    assert not (tmp_path / "result.json").exists()


def test_training_responses_come_from_it_many_at_a_time(served: Served, script: Any, tmp_path: Path) -> None:
    prompts = [{"id": f"p{i}", "prompt": f"Write function number {i}."} for i in range(32)]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, prompts)))
    status, lines, _ = script(
        "regenerate.py", "--api", served.url, "--target", served.target, "--prompts", tmp_path / "p.jsonl",
        "--out", tmp_path / "out.jsonl", "--max-new-tokens", 48, "--temperature", 0.7, "--concurrency", 16,
    ).run(600)  # fmt: skip
    assert status == 0, lines[-1]
    assert (lines[-1]["answered"], lines[-1]["reencoded"]) == (32, 0)
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    print(lines[-2])
    assert sorted(line["id"] for line in written) == sorted(p["id"] for p in prompts)
    assert all(0 < sum(line["loss_mask"]) <= 48 for line in written)
    assert len({tuple(line["input_ids"][-20:]) for line in written}) > 16, "sampled, not greedy"
