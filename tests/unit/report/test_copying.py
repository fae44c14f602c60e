"""A copy under way: a line now and then, or one that is redrawn; never a rate of bytes that lay there before."""

from __future__ import annotations

import io
import re

import pytest

from hostkit.report.copying import Copying

MIB = 1 << 20


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def told(looks: list[tuple[float, str, int]], total: int = 100 * MIB) -> list[str]:
    """Return what is said, without a terminal, over these looks: when, in which phase, bytes there."""
    said: list[str] = []
    clock = Clock()
    with Copying(said.append, terminal=False, clock=clock) as copying:
        for clock.now, phase, done in looks:
            copying(phase, done, total)
    return said


def test_a_line_comes_at_once_and_then_every_five_seconds_with_rate_and_time_to_go() -> None:
    looks = [(float(second), "copy", second * 2 * MIB) for second in range(1, 13)]
    assert told(looks) == [
        "copying 2.0 MiB of 100.0 MiB",
        "copying 12.0 MiB of 100.0 MiB, 2.0 MiB/s, 44 s to go",
        "copying 22.0 MiB of 100.0 MiB, 2.0 MiB/s, 39 s to go",
    ]


def test_of_a_copy_that_goes_on_only_its_own_bytes_count() -> None:
    looks = [(0.0, "copy", 60 * MIB), (5.0, "copy", 70 * MIB)]
    assert told(looks)[-1] == "copying 70.0 MiB of 100.0 MiB, 2.0 MiB/s, 15 s to go"


def test_a_copy_that_stands_still_says_for_how_long_instead_of_a_time_to_go() -> None:
    looks = [(0.0, "copy", 0), (1.0, "copy", 10 * MIB), (6.0, "copy", 10 * MIB), (11.0, "copy", 10 * MIB)]
    assert told(looks)[1:] == [
        "copying 10.0 MiB of 100.0 MiB, nothing new for 5 s",
        "copying 10.0 MiB of 100.0 MiB, nothing new for 10 s",
    ]


def test_waiting_for_another_and_proving_are_said_as_such() -> None:
    looks = [(0.0, "wait", MIB), (1.0, "wait", 2 * MIB), (5.0, "wait", 6 * MIB), (6.0, "prove", 100 * MIB)]
    assert told(looks) == [
        "another command copies it; waiting 1.0 MiB of 100.0 MiB",
        "another command copies it; waiting 6.0 MiB of 100.0 MiB, 1.0 MiB/s, 1 min 34 s to go",
        "verifying 100.0 MiB …",
    ]


@pytest.mark.parametrize("width", [30, 50, 80])
def test_on_a_terminal_one_line_is_redrawn_and_gone_at_the_end(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    clock = Clock()
    said: list[str] = []
    with Copying(said.append, clock=clock) as copying:
        for second in range(5):
            clock.now = float(second)
            copying("copy", second * 10 * MIB, 100 * MIB)
        copying("prove", 100 * MIB, 100 * MIB)
    screens = re.split(r"\x1b\[2K", screen.getvalue())
    texts = [" ".join(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|━", "", one).split()) for one in screens]
    assert not said
    assert "copying 40.0 MiB of 100.0 MiB, 10.0 MiB/s, 6 s to go" in texts
    assert "verifying 100.0 MiB …" in texts
    assert texts[-1] == ""  # nothing stays on the screen
    assert ("━" in screen.getvalue()) == (width > 30)
