"""What `calibrate` shows: every link that was measured, each quantity asked against measured."""

from __future__ import annotations

import itertools
from operator import itemgetter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from orchestrator import text
from orchestrator.host.directory import RunDirectory
from orchestrator.results.history import History
from orchestrator.results.verdicts import STYLES, Verdict


def measured(directory: RunDirectory) -> list[dict[str, Any]]:
    """The probes of a run as plain data; times in seconds, rates in bit/s."""
    with History.open(directory.path) as history:
        return [probe._asdict() for probe in history.probes()]


def print_measured(rows: list[dict[str, Any]], verdict: Verdict, report: Path, console: Console) -> None:
    """A table for each direction of a link, then the verdict on all."""
    for (link_class, source, target), group in itertools.groupby(rows, itemgetter("link_class", "source", "target")):
        title = f"{link_class}: {source} → {target}"
        table = Table("quantity", "asked", "measured", "accepted", "", "how", title=title, title_justify="left")
        for row in group:
            keys = ("asked", "measured", "low", "high")
            asked, found, low, high = (text.quantity(row["quantity"], row[key]) for key in keys)
            mark = f"[{STYLES[row['verdict']]}]{row['verdict']}[/]"
            table.add_row(row["quantity"], asked, found, f"{low} … {high}", mark, row["detail"])
        console.print(table)
    console.print(f"verdict [bold {STYLES[verdict]}]{verdict}[/], page {report}")
