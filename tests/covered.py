"""Which lines of the product the unit tests reach: a plugin for pytest (``-p tests.covered``), for `make coverage`.

Tracing doubles the processor time of a test, and what runs in other processes is not seen. So only the tests of `UNITS`
are traced that carry none of the marks of `UNTRACED`. The total and the files that are least covered stand above
pytest's last line.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Generator
from typing import NamedTuple

import coverage
import pytest

PACKAGES = ["edgebed", "netem", "node", "orchestrator"]
UNITS = tuple(f"tests/{package}/" for package in PACKAGES)
UNTRACED = ("slow", "netns", "e2e", "long")
LEAST = 10  # files that are told of

measuring = coverage.Coverage(data_file=None, source=PACKAGES, config_file=False)
measuring.start()  # before anything of ours is imported


class Covered(NamedTuple):
    """How many of a file's statements were run."""

    file: str
    run: int
    statements: int

    @property
    def share(self) -> float:
        return self.run / self.statements

    def __str__(self) -> str:
        return f"{self.share:7.1%}  {self.file} ({self.run} of {self.statements} lines)"


def is_traced(item: pytest.Item) -> bool:
    return item.nodeid.startswith(UNITS) and not any(item.get_closest_marker(mark) for mark in UNTRACED)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if is_traced(item):
        return (yield)
    measuring.stop()
    try:
        return (yield)
    finally:
        measuring.start()


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    measuring.stop()
    terminalreporter.section("lines that the unit tests reach, and the files they reach least")
    for line in told(found()):
        terminalreporter.write_line(line)


def found() -> list[Covered]:
    """Every file with statements, also those that were never imported."""
    with tempfile.NamedTemporaryFile() as file:
        measuring.json_report(outfile=file.name)
        files = json.load(file)["files"]
    counts = {name: each["summary"] for name, each in files.items()}
    return [
        Covered(name, count["covered_lines"], count["num_statements"])
        for name, count in counts.items()
        if count["num_statements"]
    ]


def told(files: list[Covered]) -> list[str]:
    total = Covered("in all", sum(each.run for each in files), sum(each.statements for each in files))
    least = sorted(files, key=lambda each: (each.share, each.file))[:LEAST]
    return [str(each) for each in (total, *least)]
