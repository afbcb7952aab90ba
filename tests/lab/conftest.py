"""Runs the tests of `inside/` in guests, whose kernel has netem: most in one in virtual time, where what is measured is
exact on any host, and those marked `real_time` in another one.

In a guest, every report is written down as JSON. The host hands them on as if they were its own. Without a kernel for
guests the tests are skipped with the reason, and fail in continuous integration.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import pytest

from orchestrator.drivers.virtual.kernel import BUILD, built_kernel
from tests.lab import guests
from tests.lab.guests import RESULTS
from tests.programs import CI

LAB = Path(__file__).parent
INSIDE = LAB / "inside"
SECONDS = 900.0  # of the host; measured: 100
SECONDS_LONG = 3600.0
REPORTS = "reports.jsonl"

Reports = dict[str, list[pytest.TestReport]]
_REPORTS = pytest.StashKey[Reports]()


def pytest_configure(config: pytest.Config) -> None:
    if RESULTS in os.environ:
        config.pluginmanager.register(Writer(config, Path(os.environ[RESULTS], REPORTS)))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes minutes, unless it is asked for; a guest runs what it is told to."""
    if not wants_long(config) and RESULTS not in os.environ:
        long = [item for item in items if item.get_closest_marker("long")]
        items[:] = [item for item in items if item not in long]
        config.hook.pytest_deselected(items=long)
    for item in items:
        if LAB in item.path.parents:
            item.add_marker(pytest.mark.lab)


def is_inside(item: pytest.Item) -> bool:
    """Whether a test belongs into a guest."""
    return INSIDE in item.path.parents


def wants_long(config: pytest.Config) -> bool:
    return bool(config.option.markexpr == "long")


class Writer:
    """In the guest: writes each report down as soon as there is one. Only what is closed is on the host."""

    def __init__(self, config: pytest.Config, path: Path) -> None:
        self._config = config
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        with self._path.open("a") as file:
            file.write(json.dumps(data) + "\n")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Hand on what the guest reported of a test, or, in the guest, let it run."""
    if not is_inside(item) or RESULTS in os.environ:
        return None
    if built_kernel() is None:
        outcome: Literal["failed", "skipped"] = "failed" if os.environ.get(CI) else "skipped"
        replay(item, [_outcome(item, outcome, f"needs a kernel for guests: {BUILD}")])
        return True
    replay(item, guest_reports(item.session)[item.nodeid])
    return True


def guest_reports(session: pytest.Session) -> Reports:
    """The reports of all selected tests by test, once the guests have ended."""
    if _REPORTS not in session.stash:
        session.stash[_REPORTS] = dict(run_in_guests(session))
    return session.stash[_REPORTS]


def run_in_guests(session: pytest.Session) -> Iterator[tuple[str, list[pytest.TestReport]]]:
    """Run the tests in two guests at the same time."""
    of_guest: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in filter(is_inside, session.items):
        of_guest[item.get_closest_marker("real_time") is None].append(item)
    seconds = SECONDS_LONG if wants_long(session.config) else SECONDS
    with ExitStack() as stack:
        running = []
        for virtual, items in of_guest.items():
            if not items:
                continue
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edgebed-lab-")))
            arguments = [item.nodeid for item in items]
            guest = stack.enter_context(guests.booted(place, arguments, seconds, virtual=virtual))
            running.append((items, guest, place))
        for items, guest, place in running:
            console = guest.console()
            yield from reports_of(session.config, items, console, guests.shared(place)).items()


def reports_of(config: pytest.Config, items: Sequence[pytest.Item], console: str, results: Path) -> Reports:
    """What a guest that has ended reported of these tests; a failure for each that it did not finish."""
    reports: Reports = {item.nodeid: [] for item in items}
    written = results / REPORTS
    for line in written.read_text().splitlines() if written.exists() else []:
        data = json.loads(line)
        reports[data["nodeid"]].append(_read(config, data))
    for item in items:
        if not any(report.when == "teardown" for report in reports[item.nodeid]):
            why = f"the guest did not finish this test; its console:\n{console}"
            reports[item.nodeid].append(_outcome(item, "failed", why))
    return reports


def replay(item: pytest.Item, reports: list[pytest.TestReport]) -> None:
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _read(config: pytest.Config, data: dict[str, Any]) -> pytest.TestReport:
    report: pytest.TestReport = config.hook.pytest_report_from_serializable(config=config, data=data)
    if isinstance(report.longrepr, list):
        report.longrepr = tuple(report.longrepr)  # path, line and reason of a skip; JSON has no tuples
    return report


def _outcome(item: pytest.Item, outcome: Literal["failed", "skipped"], why: str) -> pytest.TestReport:
    path, line, _ = item.location
    said: Any = (path, line or 0, f"Skipped: {why}") if outcome == "skipped" else why
    return pytest.TestReport(item.nodeid, item.location, {}, outcome, said, "call")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for report in terminalreporter.getreports("passed") if report.when == "call"]
    figures = [value for report in reports for name, value in report.user_properties if name == "figure"]
    if figures:
        terminalreporter.section("the kernel's links: asked, measured")
        for what, asked, measured in figures:
            terminalreporter.line(f"{what:<60} {asked:>16}  {measured}")
