"""Which tests answer which field report: `python -m tests.reports` writes it into docs/field-reports.md."""

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
PAGE = Path(__file__).parents[1] / "docs" / "field-reports.md"
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


def with_tests(page: str, tests: dict[str, list[str]]) -> str:
    """Return the page with the last column of each report's row filled: the files that hold its tests."""
    lines = []
    for line in page.splitlines():
        cells = line.split(" | ")
        report = cells[0].removeprefix("| ")
        if report in REPORTS:
            files = sorted({f"`{test.partition('::')[0]}`" for test in tests.get(report, [])})
            cells[-1] = (", ".join(files) or "none yet") + " |"
        lines.append(" | ".join(cells))
    return "\n".join(lines) + "\n"


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
    PAGE.write_text(with_tests(PAGE.read_text(), collector.tests))
    missing = [report for report in REPORTS if not collector.tests.get(report)]
    print(
        f"{PAGE}: {len(REPORTS) - len(missing)} of {len(REPORTS)} reports have a test; none yet: {', '.join(missing)}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
