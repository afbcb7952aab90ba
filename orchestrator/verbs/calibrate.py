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
from orchestrator.layout import write, write_entries, write_table
from orchestrator.record.directory import RunDirectory
from orchestrator.record.rows import link_in_words
from orchestrator.results.checks.verdicts import STYLES, Verdict
from orchestrator.results.history import History


def measured(directory: RunDirectory) -> list[dict[str, Any]]:
    """The probes of a run as plain data. Times are in seconds, rates in bit/s."""
    with History.open(directory.path) as history:
        return [probe._asdict() for probe in history.probes()]


def print_measured(rows: list[dict[str, Any]], verdict: Verdict, report: Path, console: Console) -> None:
    """Print a table for each direction of a link, then the overall verdict."""
    headings = ("quantity", "configured", "expected", "measured", "accepted", "", "how")
    for (link_class, *ends), group in itertools.groupby(rows, itemgetter("link_class", "source", "target")):
        rows_of = list(group)
        cells = [[row["quantity"], *_figures(row), _mark(row["verdict"]), row["detail"]] for row in rows_of]
        kinds = " and ".join(dict.fromkeys(row["kind"] for row in rows_of))
        write_table(console, headings, cells, title=f"{link_class}: {link_in_words(link_class, *ends)} ({kinds})")
        write(console, "")
    write_entries(console, [("verdict", _mark(verdict)), ("report", str(report))])


def _figures(row: Mapping[str, Any]) -> tuple[str, ...]:
    names = ("asked", "expected", "measured", "low", "high")
    *found, low, high = (text.quantity(row["quantity"], row[name]) for name in names)
    return *found, "–" if row["low"] is row["high"] is None else f"{low} … {high}"


def _mark(verdict: str) -> Text:
    return Text(verdict, style=STYLES[verdict])
