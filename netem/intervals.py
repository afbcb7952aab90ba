"""What counts may come to by chance."""

from __future__ import annotations

import math

from netem.profile import GilbertElliott

CONFIDENCE = 0.99
CONFIDENCE_Z = 2.576  # standard deviations that leave half of 1 - CONFIDENCE on either side of a normal distribution


def binomial_range(number: int, fraction: float) -> tuple[int, int]:
    """Counts (low, high) that a binomial variable leaves on either side with at most half of 1 - CONFIDENCE.

    Exact, by summing the distribution; a measured count outside contradicts the fraction.
    """
    if fraction in (0.0, 1.0):
        return round(number * fraction), round(number * fraction)
    tail = (1 - CONFIDENCE) / 2
    total = 0.0
    low = 0
    for count in range(number + 1):
        ways = math.lgamma(number + 1) - math.lgamma(count + 1) - math.lgamma(number - count + 1)
        before = total
        total += math.exp(ways + count * math.log(fraction) + (number - count) * math.log1p(-fraction))
        if before <= tail:
            low = count
        if total >= 1 - tail:
            return low, count
    return low, number


def design_effect(chain: GilbertElliott) -> float:
    """By how much the chain's losses scatter more than independent ones: the ratio of the variances of a long count.

    The state's correlation over k packets is x^k with x = 1 - p - r, and the share of the loss indicator's variance
    that the state explains is g = P(good) P(bad) (loss_bad - loss_good)^2 / (m (1 - m)), m the mean loss. Summing
    over all pairs of a long train gives 1 + 2 g x / (1 - x).
    """
    mean = chain.mean_loss
    if mean in (0.0, 1.0):
        return 1.0
    memory = 1 - chain.p - chain.r
    bad = chain.bad_fraction
    share = bad * (1 - bad) * (chain.loss_bad - chain.loss_good) ** 2 / (mean * (1 - mean))
    return 1 + 2 * share * memory / (1 - memory)
