"""Statistics, by worked examples, by scipy's own tests, and by draws with known effects."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable

import numpy as np
import pytest
from scipy import stats

from orchestrator.sweep.statistics import PairedDifference, holm, paired, restricted

DRAWS = 1000


def seeds(values: Iterable[float]) -> dict[int, float]:
    return dict(enumerate(map(float, values), start=1))


def test_a_paired_difference_is_that_of_the_t_test() -> None:
    a, b = [0.91, 0.88, 0.93, 0.90], [0.89, 0.87, 0.88, 0.90]
    found = paired(seeds(a), seeds(b))
    test = stats.ttest_rel(a, b)
    interval = test.confidence_interval(0.95)
    assert found.by_seed == pytest.approx({1: 0.02, 2: 0.01, 3: 0.05, 4: 0.0})
    assert found.mean == pytest.approx(0.02)
    assert [found.low, found.high] == pytest.approx([interval.low, interval.high])
    assert found.p_value == pytest.approx(test.pvalue)


def test_only_seeds_that_both_cases_have_count() -> None:
    assert paired({1: 5.0, 2: 7.0}, {2: 4.0, 3: 1.0}) == PairedDifference({2: 3.0}, 3.0)  # one seed: no interval
    with pytest.raises(ValueError, match="no seed in common"):
        paired({1: 5.0}, {2: 4.0})


def test_equal_differences_have_no_interval() -> None:
    found = paired({1: 0.5, 2: 0.6, 3: 0.7}, {1: 0.4, 2: 0.5, 3: 0.6})  # equal but for rounding
    assert found.mean == pytest.approx(0.1)
    assert found.low is found.high is found.p_value is found.smallest is None


@pytest.mark.parametrize("count", [3, 5, 10])
def test_intervals_cover_the_known_effect_in_95_of_100_draws(count: int) -> None:
    random = np.random.default_rng(count)
    covered = 0
    for effect in random.normal(0, 2, DRAWS):
        case = random.normal(10, 3, count)  # a seed is easy or hard for both cases
        found = paired(seeds(case + random.normal(effect, 1, count)), seeds(case))
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= effect <= found.high
    assert 0.935 <= covered / DRAWS <= 0.965


def test_the_smallest_difference_is_found_in_four_of_five_draws() -> None:
    random = np.random.default_rng(1)
    one = paired({1: -1.0, 2: 0.0, 3: 1.0}, {1: 0.0, 2: 0.0, 3: 0.0})  # a deviation of 1
    bound = stats.t.ppf(0.975, 2)
    assert one.smallest is not None
    assert stats.nct.sf(bound, 2, one.smallest * math.sqrt(3)) == pytest.approx(0.8)
    found = 0
    for _ in range(DRAWS):
        p_value = paired(seeds(random.normal(one.smallest, 1, 3)), seeds([0.0, 0.0, 0.0])).p_value
        found += p_value is not None and p_value < 0.05
    assert 0.77 <= found / DRAWS <= 0.83


def test_holm() -> None:
    # sorted .005, .01, .03, .04, times 4, 3, 2, 1: .02, .03, .06, .04, and none below one before it
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_keeps_the_family_wise_error() -> None:
    """Five cases of six without an effect, compared with one reference, so that the tests depend on each other."""
    random = np.random.default_rng(7)
    false = unadjusted = 0
    for _ in range(DRAWS):
        reference = seeds(random.normal(0, 1, 5))
        cases = [seeds(random.normal(8.0 if case == 0 else 0.0, 1, 5)) for case in range(6)]
        p_values = [paired(case, reference).p_value or 1.0 for case in cases]
        false += min(holm(p_values)[1:]) < 0.05
        unadjusted += min(p_values[1:]) < 0.05
    assert false / DRAWS <= 0.05
    assert unadjusted / DRAWS > 0.1  # what Holm is for


def test_runs_that_never_reach_the_target_count() -> None:
    # of four runs two reach it in rounds 10 and 14, one ends without in round 20, one reaches it in round 26
    times, reached = [10, 14, 20, 26], [True, True, False, True]
    assert restricted(times, reached) == [10, 14, 20, 20]
    assert restricted(times, [True] * 4) == times
    # the area below Kaplan and Meier's curve up to round 20: 10 · 1 + 4 · 3/4 + 6 · 2/4
    survival = stats.ecdf(stats.CensoredData.right_censored(times, [not each for each in reached])).sf
    places = [0.0, 10.0, 14.0, 20.0]
    area = sum(float(survival.evaluate(x)) * (y - x) for x, y in itertools.pairwise(places))
    assert statistics.fmean(restricted(times, reached)) == pytest.approx(16.0) == pytest.approx(area)
