"""The search for a limit where chance decides: the value at which half of the runs survive, with a 95 % interval.

The probability of survival at position x is 1 / (1 + exp((x − m) / s)). A grid holds the probability of each pair of m
and s. Each run is made at the median of m, where its outcome says most about m, and changes the grid by Bayes' rule.
As in QUEST (A. Watson, D. Pelli, Perception & Psychophysics 33, 1983), with a second parameter.

What is assumed before the first run: m lies anywhere on the axis, and s is most probably about a twentieth of it, with
the heavy tails of a Cauchy distribution of log s. With 30 runs the interval of a truth with s = 1/16 covers it in 95 of
100 searches; where the transition takes most of the axis (s above 1/7), in three of four.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from orchestrator.limits.scale import Scale
from orchestrator.limits.verdict import Ask, Kind, Limit, Tried

PROBABILITY = 0.95  # of an interval
RUNS = 30  # of a search without another number
SLOPE = 0.048  # the most probable s before the first run
SLOPE_SCALE = 0.2  # of the Cauchy distribution of log s
NINE_TENTHS = 2 * float(np.log(9))  # from 90 % to 10 % of survival, in s

Grid = NDArray[np.float64]

_MIDDLES: Grid = np.linspace(-0.1, 1.1, 241)
_SLOPES: Grid = np.geomspace(0.005, 0.6, 31)


def next_by_chance(scale: Scale, tried: Sequence[Tried], runs: int = RUNS) -> Ask | Limit:
    """The next value to try, or the limit after ``runs`` that count, or as many that do not."""
    counted = [one for one in tried if one.survived is not None]
    unknown = len(tried) - len(counted)
    probability = _probabilities(counted)
    middle = _quantile(probability, 0.5)
    if len(counted) < runs and unknown < runs:
        value = scale.value(float(np.clip(middle, 0, 1)))
        return Ask(scale.position(value))
    if not counted:
        return Limit("unknown", tried=len(tried), unknown=unknown)
    outside = (1 - PROBABILITY) / 2
    low = _quantile(probability, outside)
    high = _quantile(probability, 1 - outside)
    spread = NINE_TENTHS * _slope(probability)
    kind = _kind(counted)
    return Limit(kind, low, high, middle, spread, tried=len(tried), unknown=unknown)


def _kind(counted: Sequence[Tried]) -> Kind:
    survived = {one.survived for one in counted}
    if survived == {True}:
        return "none"
    if survived == {False}:
        return "all"
    return "chance"


def _probabilities(tried: Sequence[Tried]) -> Grid:
    """The probability of each pair of m (rows) and s (columns) after these runs."""
    off = (np.log(_SLOPES) - np.log(SLOPE)) / SLOPE_SCALE
    logarithm = np.tile(-np.log1p(off * off), (len(_MIDDLES), 1))
    for one in tried:
        distance = (one.position - _MIDDLES[:, None]) / _SLOPES[None, :]
        if not one.survived:
            distance = -distance
        logarithm -= np.logaddexp(0, distance)
    weights: Grid = np.exp(logarithm - logarithm.max())
    normed: Grid = weights / weights.sum()
    return normed


def _quantile(probability: Grid, share: float) -> float:
    """The position below which m lies with this probability."""
    of_middles = probability.sum(axis=1)
    until = np.cumsum(of_middles)
    index = int(np.searchsorted(until, share))
    below = until[index - 1] if index else 0.0
    inside = (share - below) / of_middles[index]
    step = _MIDDLES[1] - _MIDDLES[0]
    return float(_MIDDLES[index] - step / 2 + inside * step)


def _slope(probability: Grid) -> float:
    """The geometric mean of s."""
    of_slopes = probability.sum(axis=0)
    return float(np.exp(of_slopes @ np.log(_SLOPES)))
