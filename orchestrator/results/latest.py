"""The latest reports of the nodes, while a run continues."""

from __future__ import annotations

from orchestrator.record.rows import Metric
from orchestrator.results.means import mean


class LatestReports:
    """The reports that the last mean of `orchestrator.results.means.mean_series` covers, folded as they come."""

    def __init__(self) -> None:
        self._latest: dict[str, Metric] = {}
        self._has_rounds = False

    def add(self, report: Metric) -> None:
        """Take the next report in the order of recording."""
        if report.round is not None and not self._has_rounds:
            self._has_rounds = True
            self._latest.clear()
        elif report.round is None and self._has_rounds:
            return
        before = self._latest.get(report.node)
        if before is None or (report.round or 0) >= (before.round or 0):
            self._latest[report.node] = report

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes that count."""
        return frozenset(self._latest)

    def mean(self) -> float | None:
        """The last value of `mean_series`; None before the first report."""
        if not self._latest:
            return None
        return mean(report.value for report in self._latest.values())
