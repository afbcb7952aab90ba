"""A metric over the rounds and the seconds of runs, and its mean and range over the runs of a case."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from orchestrator.record.rows import Metric
from orchestrator.results.evaluation.targets import Judged, accuracy_series
from orchestrator.results.history import History
from orchestrator.results.steps import steps

MOST_POINTS = 400  # of one curve; a screen shows no more


Points = list[tuple[float, float]]


class RunCurve(NamedTuple):
    """The values that a run reported, by round (`orchestrator.results.steps`) and by seconds of training, both in
    ascending order."""

    by_round: Points
    by_seconds: Points

    @property
    def last(self) -> float | None:
        """The value of the last round. Slow nodes may report earlier rounds after it."""
        if self.by_round:
            return self.by_round[-1][1]
        return None


@dataclass(frozen=True)
class CurveBand:
    """At each place ``x``: the mean, the lowest and the highest value of several runs."""

    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


def read_curve(run: Path, judged: Judged | Sequence[str]) -> RunCurve:
    """The accuracy of the run in the directory ``run`` on a kind of test set."""
    with History.open(run) as history:
        series = accuracy_series(history, judged)
        began = history.training_began or 0.0
        return curve_of(series, began)


def curve_of(series: Sequence[Metric], began: float) -> RunCurve:
    """The finite values of a series of a run that started training at ``began`` seconds."""
    by_round: dict[float, float] = {}
    by_seconds = []
    in_time = sorted(series, key=lambda metric: metric.t)
    for step, metric in zip(steps(in_time), in_time, strict=True):
        if math.isfinite(metric.value):
            by_round[float(step)] = metric.value
            by_seconds.append((metric.t - began, metric.value))
    rounds = sorted(by_round.items())
    return RunCurve(rounds, sorted(by_seconds))


def band(curves: Sequence[Points]) -> CurveBand | None:
    """The mean and the range over curves of points (x, value) in ascending order; None if no curve has a point.

    Between two points a curve is interpolated linearly. A run that ended early counts with its last value until the end
    of the longest. The band starts where every curve has a value.
    """
    drawn = [np.array(curve) for curve in curves if curve]
    if not drawn:
        return None
    all_x = [curve[:, 0] for curve in drawn]
    places = np.unique(np.concatenate(all_x))
    start = max(x[0] for x in all_x)
    places = places[places >= start]
    if len(places) > MOST_POINTS:
        spaced = np.linspace(0, len(places) - 1, MOST_POINTS)
        places = places[spaced.round().astype(int)]
    interpolated = []
    for curve in drawn:
        x = curve[:, 0]
        y = curve[:, 1]
        interpolated.append(np.interp(places, x, y))
    values = np.stack(interpolated)
    return CurveBand(
        x=places.tolist(),
        mean=values.mean(axis=0).tolist(),
        low=values.min(axis=0).tolist(),
        high=values.max(axis=0).tolist(),
    )
