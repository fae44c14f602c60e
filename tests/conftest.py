"""What every test shares: the `report` marker, which ties a test to the field report that it answers."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "report(*ids): the field reports (a1, b3, ...) that this test answers; see tests/reports.py"
    )
