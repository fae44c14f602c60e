"""The console of a pipe: plain text, no spaces at the ends of lines."""

import pytest
from rich.table import Table

from hostkit.report.console import console


def test_lines_end_without_spaces_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("a", "a longer heading"):
        table.add_column(heading)
    table.add_row("value", "short")
    plain = console()
    plain.print(table)
    plain.print("word " * 40)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "value  short"
    assert len(lines) > 3
    assert [line for line in lines if line != line.rstrip()] == []
