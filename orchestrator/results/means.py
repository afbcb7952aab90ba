"""Means of a metric over several nodes, the same for every reader of a run.

Each node counts with its latest report, whether it is online or not. Otherwise a mean would rise when weak clients
leave. Nodes that have never reported, and nodes without training samples, do not count.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from orchestrator.record.rows import Metric

Counts = Callable[[str], bool]  # whether a node counts in means
Nodes = Mapping[str, Mapping[str, Any]]  # of the plan, by name


class Coverage(NamedTuple):
    """How many of the run's ``total`` clients a mean ``covers``. ``noun``: what they are, such as "client"."""

    covers: int
    total: int
    noun: str = "client"

    def __str__(self) -> str:
        """Empty if the mean covers all of them."""
        if self.covers >= self.total:
            return ""
        return f"mean of {self.covers:,} of {self.total:,} {self.noun}s"


def mean(values: Iterable[float]) -> float:
    """The mean of one or more values."""
    terms = list(values)
    return math.fsum(terms) / len(terms)


def steps_of(reports: Sequence[Metric]) -> dict[int, list[Metric]]:
    """Reports in the order of recording, by step. A step is a round. If no report has a round, as those of programs,
    each report is a step of its own, counted from 1. If only some have a round, the others are left out."""
    steps: defaultdict[int, list[Metric]] = defaultdict(list)
    has_rounds = any(report.round is not None for report in reports)
    for number, report in enumerate(reports, 1):
        if report.round is not None:
            steps[report.round].append(report)
        elif not has_rounds:
            steps[number].append(report)
    return dict(sorted(steps.items()))


def mean_series(reports: Sequence[Metric]) -> list[Metric]:
    """The mean over nodes at each step: that of their latest reports up to then. ``reports`` are those of one metric in
    the order of recording. A mean has the time of the step's last report, and its ``node`` is empty."""
    latest: dict[str, float] = {}
    series = []
    for step in steps_of(reports).values():
        for report in step:
            latest[report.node] = report.value
        last = max(step, key=lambda report: report.t)
        series.append(last._replace(node="", value=mean(latest.values())))
    return series


class Band(NamedTuple):
    """The latest reports of devices at the end of a round: the time of the round's last report, and the lowest, highest
    and mean value."""

    t: float
    low: float
    high: float
    mean: float


class Bands:
    """The bands of a metric by round, folded from the reports in the order of recording. A report counts in its own
    round unless it is more than ``OPEN_ROUNDS`` rounds late; then in the rounds that are still open."""

    OPEN_ROUNDS = 16

    def __init__(self) -> None:
        self._settled: dict[int, Band] = {}
        self._last_settled = -1
        self._before: dict[str, Metric] = {}  # the latest reports of the settled rounds, by node
        self._open: dict[int, dict[str, Metric]] = {}  # the reports of the other rounds

    def add(self, report: Metric, round: int) -> None:
        """Take the next report."""
        if round <= self._last_settled:
            before = self._before.get(report.node)
            if before is None or (before.round or 0) <= round:
                self._before[report.node] = report
            return
        self._open.setdefault(round, {})[report.node] = report
        if len(self._open) > self.OPEN_ROUNDS:
            oldest = min(self._open)
            reports = self._open.pop(oldest)
            self._before |= reports
            self._settled[oldest] = _band(reports, self._before)
            self._last_settled = oldest

    def by_round(self) -> dict[int, Band]:
        bands = dict(self._settled)
        latest = dict(self._before)
        for round, reports in sorted(self._open.items()):
            latest |= reports
            bands[round] = _band(reports, latest)
        return bands


def _band(reports: Mapping[str, Metric], latest: Mapping[str, Metric]) -> Band:
    """The band of a round with these reports, when these are the latest of all nodes."""
    values = [report.value for report in latest.values()]
    t = max(report.t for report in reports.values())
    return Band(t, min(values), max(values), mean(values))


def without_samples(nodes: Nodes) -> frozenset[str]:
    """The planned ``nodes`` that neither hold training samples nor have any below them. Empty if none holds samples:
    programs have data that the plan does not know."""
    holding: set[str] = set()
    for name, node in nodes.items():
        above: str | None = name if node.get("samples") else None
        while above is not None and above not in holding:
            holding.add(above)
            above = nodes.get(above, {}).get("parent")
    if holding:
        return frozenset(nodes.keys() - holding)
    return frozenset()


def clients_of(plan: Mapping[str, Any], nodes: Nodes, counts: Counts) -> int:
    """How many clients of a run hold data: its population, or its devices, or its edges if it has no devices."""
    population = plan.get("population")
    if population:
        return int(population["size"])
    for tier in ("device", "edge"):
        names = [name for name, node in nodes.items() if node.get("tier") == tier]
        if names:
            return sum(map(counts, names))
    return 0
