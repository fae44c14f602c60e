"""The map from field reports to the tests that answer them: `python -m tests.reports`, made from `report` markers."""

from __future__ import annotations

import contextlib
import io
import sys
from collections import defaultdict
from pathlib import Path

import pytest

# Area: what it is about, and its last report. Reports bear odd numbers.
AREAS = {
    "a": ("process liveness", 17),
    "b": ("log tails", 11),
    "c": ("checkpoints", 19),
    "d": ("file transfer", 13),
    "e": ("ssh", 19),
    "f": ("containers", 13),
    "g": ("detached jobs and resources", 11),
    "h": ("schedules", 9),
    "i": ("results and comparison", 11),
    "j": ("inventory files", 11),
}
REPORTS = tuple(
    f"{area}{number}" for area, (_name, last) in AREAS.items() for number in range(1, last + 1, 2)
)


class Collector:
    """A pytest plugin that keeps, for each report, the tests that bear its marker."""

    def __init__(self) -> None:
        self.tests: dict[str, list[str]] = defaultdict(list)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            for report in reports_of(item):
                name = item.nodeid.split("[", maxsplit=1)[0]
                if name not in self.tests[report]:
                    self.tests[report].append(name)


def reports_of(item: pytest.Item) -> list[str]:
    """Return the reports that a test answers."""
    return [str(report) for marker in item.iter_markers("report") for report in marker.args]


def markdown(tests: dict[str, list[str]]) -> str:
    """Return the map as a page: area by area, each report with its tests, and what is still without one."""
    answered = sum(1 for report in REPORTS if tests.get(report))
    lines = ["# Field reports and their tests", "", f"{answered} of {len(REPORTS)} reports have a test.", ""]
    for area, (name, _last) in AREAS.items():
        lines += [f"## {area}. {name}", "", "| report | tests |", "|---|---|"]
        for report in REPORTS:
            if report.startswith(area):
                named = "<br>".join(f"`{test}`" for test in tests.get(report, [])) or "none yet"
                lines.append(f"| {report} | {named} |")
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    collector = Collector()
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        code = pytest.main(
            ["--collect-only", "-q", "-m", "", "-p", "no:cacheprovider", str(Path(__file__).parent)],
            plugins=[collector],
        )
    if code:
        print(shown.getvalue(), file=sys.stderr)
        return int(code)
    print(markdown(collector.tests), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
