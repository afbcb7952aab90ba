from __future__ import annotations

import time
from math import comb

import pytest

from netem.impair import Impairment
from netem.measurement.intervals import _up_to, binomial_range, design_effect
from netem.profile import GilbertElliott, LinkProfile


@pytest.mark.parametrize(("number", "fraction"), [(10, 0.5), (100, 0.01), (400, 0.05), (1000, 0.3)])
def test_at_most_half_a_percent_lies_on_either_side(number: int, fraction: float) -> None:
    probabilities = [
        comb(number, count) * fraction**count * (1 - fraction) ** (number - count) for count in range(number + 1)
    ]
    low, high = binomial_range(number, fraction)
    assert sum(probabilities[:low]) <= 0.005 < sum(probabilities[: low + 1])
    assert sum(probabilities[high + 1 :]) <= 0.005 + 1e-12 < sum(probabilities[high:])


@pytest.mark.parametrize(("number", "fraction", "count"), [(10, 0.5, 4), (30, 0.3, 9), (7, 0.9, 0), (9, 0.2, 1)])
def test_the_tail_is_the_sum_of_its_probabilities(number: int, fraction: float, count: int) -> None:
    probabilities = [
        comb(number, some) * fraction**some * (1 - fraction) ** (number - some) for some in range(count + 1)
    ]
    assert _up_to(number, fraction, count) == pytest.approx(sum(probabilities), rel=1e-12)


def test_the_normal_approximation_agrees_for_large_numbers() -> None:
    # A million at 20 %: standard deviation 400; 2.576 of them for 99 %, 5.73 for all but 1e-8.
    assert binomial_range(1_000_000, 0.2) == pytest.approx((200_000 - 1030.3, 200_000 + 1030.3), abs=1.5)
    assert binomial_range(1_000_000, 0.2, 1 - 1e-8) == pytest.approx((200_000 - 2292, 200_000 + 2292), abs=5)


def test_a_thousand_million_packets_take_a_moment() -> None:
    """Where the distribution is as small as the smallest floats, its sum took 13 s."""
    began = time.process_time()
    # Standard deviation 3146.4; 3.891 of them for all but 1e-4.
    assert binomial_range(10**9, 0.01, 1 - 1e-4) == pytest.approx((10**7 - 12_241, 10**7 + 12_241), rel=0, abs=5)
    assert time.process_time() - began < 5


def test_certain_fractions_leave_no_choice() -> None:
    assert binomial_range(50, 0.0) == (0, 0)
    assert binomial_range(50, 1.0) == (50, 50)


def test_design_effect_of_a_gilbert_chain() -> None:
    # All of the variance is the state's (g = 1), x = 1 - 0.02 - 0.3 = 0.68: (1 + x) / (1 - x).
    assert design_effect(GilbertElliott(p=0.02, r=0.3)) == pytest.approx(1.68 / 0.32)


def test_design_effect_without_memory_is_one() -> None:
    assert design_effect(GilbertElliott(p=0.4, r=0.6)) == pytest.approx(1.0)
    assert design_effect(GilbertElliott(p=0.1, r=0.1, loss_good=0.2, loss_bad=0.2)) == pytest.approx(1.0)


def test_design_effect_is_the_ratio_of_variances() -> None:
    chain = GilbertElliott(p=0.05, r=0.25, loss_good=0.01, loss_bad=0.7)
    losses = []
    for seed in range(400):
        link = Impairment(LinkProfile(loss=chain), seed)
        losses.append(sum(not link.offer(0.0, 100) for _ in range(500)))
    mean = sum(losses) / len(losses)
    variance = sum((lost - mean) ** 2 for lost in losses) / (len(losses) - 1)
    binomial = 500 * chain.mean_loss * (1 - chain.mean_loss)
    # The sample variance of 400 has a relative standard error of sqrt(2 / 399) = 7 %.
    assert variance / binomial == pytest.approx(design_effect(chain), rel=0.2)
