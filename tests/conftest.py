"""What every test shares: the `report` marker, and the rule that CI never skips a test on the real fleet."""

from __future__ import annotations

import signal
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.fleet.needs import lacking, required

# A busy machine is no fault of what is tested: neither an example nor its making has a time limit of its own.
settings.register_profile("hostkit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hostkit")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "report(*ids): the field reports (a1, b3, ...) that this test answers; see tests/reports.py",
    )
    # the background jobs of a script ignore the first, what `nohup` starts ignores the second; tests that interrupt
    # a command, or hang up on it, need them as a terminal has them
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def _cache_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes what the user's own commands have kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests may take their time: the limit of the others would only say that the machine is busy."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(900))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test on the real fleet is skipped where there can be none, with one clear reason."""
    if item.get_closest_marker("fleet") and (reason := lacking()):
        pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where the fleet is required (HOSTKIT_REQUIRE_FLEET=1), a skipped test of it has failed."""
    report = yield
    if report.skipped and required() and item.get_closest_marker("fleet"):
        report.outcome = "failed"
        report.longrepr = f"the real fleet is required here, and this test was skipped: {call.excinfo}"
    return report
