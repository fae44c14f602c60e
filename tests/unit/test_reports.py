"""The map of field reports counts every marker, and says what has no test."""

from __future__ import annotations

import pytest

from tests.reports import REPORTS, markdown, reports_of


def test_each_report_has_its_line_whether_it_has_a_test_or_not() -> None:
    page = markdown({"a1": ["tests/x.py::test_one", "tests/y.py::test_two"]})
    assert f"1 of {len(REPORTS)} reports have a test." in page
    assert "| a1 | `tests/x.py::test_one`<br>`tests/y.py::test_two` |" in page
    assert page.count("none yet") == len(REPORTS) - 1


def test_every_marker_in_this_run_names_a_report_that_exists(request: pytest.FixtureRequest) -> None:
    named = {report: item.nodeid for item in request.session.items for report in reports_of(item)}
    assert {report: test for report, test in named.items() if report not in REPORTS} == {}
