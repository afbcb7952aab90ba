"""Statistics of cases that share seeds: paired differences, Holm's adjustment, targets that some runs never reach."""

from __future__ import annotations

import importlib.util
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEVEL = 0.05  # of the tests; intervals have a confidence of 1 - LEVEL
POWER = 0.8
SAME = 1e-9  # differences that vary by less than this part of the values are equal, but for rounding


@dataclass(frozen=True)
class PairedDifference:
    """The mean difference of two cases over the seeds that both have, in the unit of the values.

    ``low``, ``high``: its 95% confidence interval. ``p_value``: of the two-sided paired t-test. ``smallest``: the true
    difference that this test alone finds with a probability of 80%, at the 5% level, with this number of seeds and this
    deviation. These four are None with a single seed, and if all seeds have the same difference.
    """

    by_seed: Mapping[int, float]
    mean: float
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    smallest: float | None = None


def available() -> bool:
    """Whether SciPy, which `paired` needs, is installed."""
    return importlib.util.find_spec("scipy") is not None


def paired(a: Mapping[int, float], b: Mapping[int, float]) -> PairedDifference:
    """``a`` minus ``b``, by seed. ValueError if they have no seed in common.

    The interval and the test (Student 1908) assume that differences are roughly normal. They are not adjusted for
    several comparisons; `holm` adjusts p-values.
    """
    from scipy import special  # takes a quarter of a second

    by_seed = {}
    largest = 0.0
    for seed in a:
        if seed in b:
            by_seed[seed] = a[seed] - b[seed]
            largest = max(largest, abs(a[seed]), abs(b[seed]))
    if not by_seed:
        raise ValueError("the cases have no seed in common")
    values = list(by_seed.values())
    mean = statistics.fmean(values)
    deviation = 0.0
    if len(values) > 1:
        deviation = statistics.stdev(values)
    if deviation <= SAME * largest:
        return PairedDifference(by_seed, mean)
    freedom = len(values) - 1
    error = deviation / math.sqrt(len(values))
    bound = float(special.stdtrit(freedom, 1 - LEVEL / 2))
    tail = float(special.stdtr(freedom, -abs(mean) / error))
    noncentrality = float(special.nctdtrinc(freedom, 1 - POWER, bound))
    return PairedDifference(
        by_seed,
        mean,
        low=mean - bound * error,
        high=mean + bound * error,
        p_value=2 * tail,
        smallest=error * noncentrality,
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values, adjusted so that the probability of any false finding among them stays below the level (Holm
    1979)."""
    adjusted = [0.0] * len(p_values)
    ascending = sorted(range(len(p_values)), key=p_values.__getitem__)
    least = 0.0
    for rank, place in enumerate(ascending):
        hypotheses = len(p_values) - rank
        least = max(least, min(1.0, hypotheses * p_values[place]))
        adjusted[place] = least
    return adjusted


def restricted(times: Sequence[float], reached: Sequence[bool]) -> list[float]:
    """Times to a target, cut at the end of the shortest run that never reached it. Uncut if all reached it.

    ``times``: when a run reached the target, or when it ended without. The mean of the result is the restricted mean
    (Royston and Parmar 2013): up to the cut every run is observed, so none is left out. It is a lower bound of the
    mean time to the target.
    """
    cut = math.inf
    for time, done in zip(times, reached, strict=True):
        if not done:
            cut = min(cut, time)
    return [min(time, cut) for time in times]
