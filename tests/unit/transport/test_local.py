"""Commands on this machine end with the hostkit that asked for them, whenever that is ended."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from hostkit.transport import local
from hostkit.transport.line import Budget


def _carry(words: list[str]) -> tuple[bytes, bytes]:
    return local.LocalLine("me").run(words, b"", Budget(None), lambda _out, _err: False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_while_a_command_is_started_still_ends_the_command(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    started: list[int] = []
    real = subprocess.Popen

    def popen(*arguments, **more):
        process = real(*arguments, **more)
        started.append(process.pid)
        os.kill(os.getpid(), number)  # before the caller has the process in its hands
        return process

    def handler(which: int, _frame: object) -> None:
        raise SystemExit(128 + which)

    monkeypatch.setattr(local.subprocess, "Popen", popen)
    kept = signal.signal(number, handler)
    try:
        with pytest.raises(SystemExit) as ended:
            _carry(["sleep", "600"])
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, kept)
    assert ended.value.code == 128 + number
    assert not Path(f"/proc/{started[0]}").exists()


def test_a_program_that_is_not_there_is_said_and_signals_are_heard_as_before() -> None:
    kept = signal.getsignal(signal.SIGTERM)
    with pytest.raises(local.UnreachableError) as refused:
        _carry(["/no/such/program"])
    assert "cannot start /no/such/program" in refused.value.what
    assert signal.getsignal(signal.SIGTERM) is kept
