"""Runs the tests of `inside/` where there is a kernel with netem: here, or in two guests booted for all of them.

One guest measures links; beside it the other, which has a processor of its own too, makes whole runs. In a guest every
report is written down as JSON; the host hands them on as if they were its own. Where the packages that a guest needs
are missing, the tests are skipped with the reason, and fail in continuous integration.

Guests take minutes. So the tests in them are the last of a session, and their guests start before that, beside tests
that only compute: see `begin`.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.lab import uml

INSIDE = Path(__file__).with_name("inside")
SECONDS = 600.0
SECONDS_LONG = 1800.0
RESULTS = "EDGEBED_LAB"  # in a guest: the directory to write reports to
REPORTS = "reports.jsonl"

Reports = dict[str, list[pytest.TestReport]]
_REPORTS = pytest.StashKey[Reports]()
_GUESTS = pytest.StashKey["Guests"]()
_HERE = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    if RESULTS in os.environ:
        config.pluginmanager.register(Writer(config, Path(os.environ[RESULTS], REPORTS)))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes minutes, unless it is asked for; a guest runs what it is told to. The rest comes last."""
    if not wants_long(config) and RESULTS not in os.environ:
        long = [item for item in items if item.get_closest_marker("long")]
        items[:] = [item for item in items if item not in long]
        config.hook.pytest_deselected(items=long)
    for item in filter(is_inside, items):
        item.add_marker(pytest.mark.lab)
    items.sort(key=is_inside)


def is_inside(item: pytest.Item) -> bool:
    """Whether a test belongs into a guest."""
    return INSIDE in item.path.parents


def wants_long(config: pytest.Config) -> bool:
    return bool(config.option.markexpr == "long")


class Writer:
    """In the guest: writes each report down as soon as there is one."""

    def __init__(self, config: pytest.Config, path: Path) -> None:
        self._config = config
        self._file = path.open("w", buffering=1)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._file.write(json.dumps(data) + "\n")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Hand on what the guest reported of a test, or let it run here."""
    if not is_inside(item) or netem_here(item.config):
        return None
    if why := uml.missing():
        if "CI" in os.environ:
            why = f"CI must run the kernel lab: {why}"
        replay(item, [_outcome(item, "failed" if "CI" in os.environ else "skipped", why)])
        return True
    if why := uml.unfit():
        replay(item, [_outcome(item, "skipped", why)])
        return True
    replay(item, guest_reports(item.session)[item.nodeid])
    return True


def netem_here(config: pytest.Config) -> bool:
    """Whether this kernel's netem works, by trying it out; inside a guest there is no other place to go."""
    if _HERE not in config.stash:
        command = ["unshare", *([] if os.geteuid() == 0 else ["-Ur"]), "-n"]
        tryout = [*command, sys.executable, "-m", "orchestrator.fabric.tc.netem_support"]
        try:
            result = subprocess.run(tryout, capture_output=True, text=True, check=True, cwd=config.rootpath)
            works = json.loads(result.stdout)["netem"]
        except (OSError, subprocess.CalledProcessError):
            works = False
        config.stash[_HERE] = works or RESULTS in os.environ
    return config.stash[_HERE]


class Guests:
    """The guests of a session, from their start on."""

    def __init__(self, session: pytest.Session) -> None:
        self._config = session.config
        self._stack = ExitStack()
        self._running: list[tuple[list[pytest.Item], uml.Guest, Path]] = []
        items = [item for item in session.items if is_inside(item)]
        runs = [item for item in items if item.get_closest_marker("e2e")]
        links = [item for item in items if item not in runs]
        seconds = SECONDS_LONG if wants_long(session.config) else SECONDS
        name = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="edgebed-lab-"))
        for part, chosen in (("links", links), ("runs", runs)):
            if chosen:
                results = Path(name, part)
                results.mkdir()
                # As this session, a guest's heeds the options that the environment has for all.
                arguments = [*shlex.split(os.environ.get("PYTEST_ADDOPTS", "")), *(item.nodeid for item in chosen)]
                # What is measured comes before all else on the host, the other guest among it.
                guest = uml.booted(results, arguments, seconds, first=chosen is links)
                self._running.append((chosen, self._stack.enter_context(guest), results))

    def reports(self) -> Reports:
        """The reports of their tests, once they have ended."""
        with self._stack:
            return {
                nodeid: reports
                for chosen, guest, results in self._running
                for nodeid, reports in reports_of(self._config, chosen, guest.console(), results).items()
            }

    def end(self) -> None:
        """End them, if nobody has asked for their reports."""
        self._stack.close()


def begin(session: pytest.Session) -> None:
    """Start the guests that this session needs, unless they have started. Tests that measure, or that need both
    processors, should be over by then."""
    if _GUESTS in session.stash or not is_inside(session.items[-1]):  # which come last
        return
    if not (netem_here(session.config) or uml.missing() or uml.unfit()):
        session.stash[_GUESTS] = Guests(session)


def end(session: pytest.Session) -> None:
    """End the guests of a session that did not come to their tests."""
    if _GUESTS in session.stash:
        session.stash[_GUESTS].end()


def guest_reports(session: pytest.Session) -> Reports:
    """The reports of all selected tests by test, once the guests have ended."""
    if _REPORTS not in session.stash:
        begin(session)
        session.stash[_REPORTS] = session.stash[_GUESTS].reports()
    return session.stash[_REPORTS]


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
