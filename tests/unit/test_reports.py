"""Every field report has its row in the page, and every marker names a report that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.reports import PAGE, REPORTS, reports_of, with_tests


def test_each_report_has_one_row_with_trigger_and_outcome() -> None:
    rows = re.findall(r"^\| ([a-j]\d+) \| (.+) \| (.+) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert tuple(report for report, *_ in rows) == REPORTS


def test_the_files_that_the_page_names_exist() -> None:
    for file in set(re.findall(r"`(tests/[^`]+)`", PAGE.read_text())):
        assert Path(PAGE.parents[1], file).is_file(), f"{file}: run python -m tests.reports"


def test_the_last_column_is_filled_from_the_markers() -> None:
    page = with_tests(
        "| a1 | x | y | none yet |\n| a3 | x | y | `tests/old.py` |\ntext", {"a1": ["tests/x.py::test_one"]}
    )
    assert page == "| a1 | x | y | `tests/x.py` |\n| a3 | x | y | none yet |\ntext\n"


def test_every_marker_in_this_run_names_a_report_that_exists(request: pytest.FixtureRequest) -> None:
    named = {report: item.nodeid for item in request.session.items for report in reports_of(item)}
    assert {report: test for report, test in named.items() if report not in REPORTS} == {}
