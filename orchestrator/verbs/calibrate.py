"""The output of `calibrate`: for every measured link, each quantity as configured, expected and measured."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from orchestrator import text
from orchestrator.layout import Cell, write, write_entries, write_table
from orchestrator.record.directory import RunDirectory
from orchestrator.record.rows import link_in_words
from orchestrator.results.checks.verdicts import STYLES, Verdict
from orchestrator.results.history import History


def measured(directory: RunDirectory) -> list[dict[str, Any]]:
    """The probes of a run as plain data. Times are in seconds, rates in bit/s."""
    with History.open(directory.path) as history:
        probes = history.probes()
        return [probe._asdict() for probe in probes]


def print_measured(
    rows: list[dict[str, Any]],
    verdict: Verdict,
    report: Path,
    console: Console,
) -> None:
    """Print a table for each direction of a link, then the overall verdict."""
    headings = ("quantity", "configured", "expected", "measured", "accepted", "", "how")
    direction = itemgetter("link_class", "source", "target")
    for (link_class, source, target), group in itertools.groupby(rows, direction):
        cells = []
        kinds = []
        for row in group:
            mark = _mark(row["verdict"])
            figures = _figures(row)
            cells.append([row["quantity"], *figures, mark, row["detail"]])
            kinds.append(row["kind"])
        link = link_in_words(link_class, source, target)
        how = " and ".join(dict.fromkeys(kinds))
        write_table(console, headings, cells, title=f"{link_class}: {link} ({how})")
        write(console, "")
    entries: list[tuple[Cell, Cell]] = []
    entries.append(("verdict", _mark(verdict)))
    entries.append(("report", str(report)))
    write_entries(console, entries)


def _figures(row: Mapping[str, Any]) -> tuple[str, ...]:
    figures = []
    for name in ("asked", "expected", "measured"):
        value = row[name]
        figure = text.quantity(row["quantity"], value)
        figures.append(figure)
    return *figures, _accepted(row)


def _accepted(row: Mapping[str, Any]) -> str:
    """The range in which the measured value is accepted."""
    if row["low"] is None and row["high"] is None:
        return "–"
    low = text.quantity(row["quantity"], row["low"])
    high = text.quantity(row["quantity"], row["high"])
    return f"{low} … {high}"


def _mark(verdict: str) -> Text:
    return Text(verdict, style=STYLES[verdict])
