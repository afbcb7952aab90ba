"""The steps at which plots, tables and exports show what a node has reported of a metric: its rounds.

Programs may report without rounds. Then the reports of a series are counted from 1 in the order of time. In a series
that has rounds, a report without one belongs to the round before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.record.rows import Metric


class StepCounter:
    """The steps of one series: what one node reports of one metric and scope, or a mean over nodes."""

    def __init__(self) -> None:
        self._latest = 0
        self._has_rounds = False

    def step(self, round: int | None) -> int:
        """The step of the next report. A step never changes by the reports after it."""
        if round is not None:
            self._has_rounds = True
            self._latest = round
        elif not self._has_rounds:
            self._latest += 1
        return self._latest


def steps(series: Sequence[Metric]) -> list[int]:
    """The step of each report of one series in the order of time."""
    counter = StepCounter()
    return [counter.step(report.round) for report in series]
