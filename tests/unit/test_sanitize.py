"""What a host says cannot act on the terminal of whoever reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostkit.sanitize import clean, one_line, sanitize


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\nthe next line stays", "\nthe next line stays"),
        ("a\rb\x00c\x08", "a\ufffdb\ufffdc\ufffd"),
        ("\u202egnp.exe", "\ufffdgnp.exe"),
        ("tab\tand\nnewline", "tab\tand\nnewline"),
    ],
)
def test_sequences_go_and_what_is_left_of_controls_is_marked(text: str, shown: str) -> None:
    assert sanitize(text) == shown


def test_a_log_keeps_its_carriage_returns_and_a_sentence_has_none() -> None:
    assert clean("step 1\rstep 2\x07\n") == "step 1\rstep 2\n"
    assert one_line("a file\n\tcalled\rthis") == "a file called this"


@given(st.text() | st.text(alphabet="\x1b\x9b[]0;m\x07\n\r\tax"))
def test_no_text_whatever_keeps_a_control_character(text: str) -> None:
    for made, kept in ((sanitize(text), "\n\t"), (clean(text), "\n\t\r"), (one_line(text), "")):
        assert not any((ord(c) < 32 or 127 <= ord(c) < 160) and c not in kept for c in made)
