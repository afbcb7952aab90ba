"""A run from its record: the rows that a `Reader` gives, and what follows from them."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from orchestrator.record.reader import Reader
from orchestrator.record.rows import Resources
from orchestrator.results.facts import Facts, Fold
from orchestrator.results.folds import Reports


class History(Reader, Facts):
    """The facts of one run directory. Every call reads the record, so the facts of a running run stay up to date."""

    def __init__(self, directory: Path, connection: sqlite3.Connection) -> None:
        Reader.__init__(self, directory, connection)

    def folded(self, kind: type[Fold]) -> Fold:
        fold = kind()
        for event in self.events(*kind.EVENTS):
            fold.add(event)
        return fold

    def reports(self, name: str, scope: str) -> Reports:
        reports = Reports(self.many_devices, self.counts, keeps_all=True)
        for metric in self.metrics(name, scope):
            reports.add(metric)
        return reports


def processor_seconds(rows: Iterable[Resources], since: float) -> dict[str, float]:
    """The processor seconds that each node used after ``since``, over all restarts of its process."""
    before: dict[str, float] = {}
    used: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        last = before.get(row.node, 0.0)
        if row.t >= since:
            used[row.node] += row.cpu_seconds - (last if row.cpu_seconds >= last else 0.0)
        before[row.node] = row.cpu_seconds
    return dict(used)
