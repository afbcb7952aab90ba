"""The ranges in which random counts lie."""

from __future__ import annotations

import math

from netem.profile import GilbertElliott

CONFIDENCE = 0.99
CONFIDENCE_Z = 2.576  # standard deviations that leave half of 1 - CONFIDENCE on either side of a normal distribution


def binomial_range(number: int, fraction: float, confidence: float = CONFIDENCE) -> tuple[int, int]:
    """Central interval (low, high) of a binomial count: each side has a probability of at most (1 - confidence) / 2.
    Exact, by summing the distribution's tails. A measured count outside the interval contradicts the fraction."""
    if number == 0 or fraction in (0.0, 1.0):
        certain = round(number * fraction)
        return certain, certain
    tail = (1 - confidence) / 2
    low = _most_below(number, fraction, tail)
    # The upper bound is the lower bound of the complementary count.
    complement = _most_below(number, 1 - fraction, tail)
    return low, number - complement


def _most_below(number: int, fraction: float, tail: float) -> int:
    """The largest count k with P(X < k) at most ``tail`` < 1/2, for a binomial variable X."""
    low = 0
    high = math.ceil(number * fraction)  # the median is at most this
    while low < high:
        count = (low + high + 1) // 2
        if _up_to(number, fraction, count - 1) <= tail:
            low = count
        else:
            high = count - 1
    return low


def _up_to(number: int, fraction: float, count: int) -> float:
    """P(X <= ``count``) of a binomial variable X over ``number`` trials; ``count`` is at most the mean."""
    rest = number - count
    log_ways = math.lgamma(number + 1)
    log_ways -= math.lgamma(count + 1)
    log_ways -= math.lgamma(rest + 1)
    log_successes = count * math.log(fraction)
    log_failures = rest * math.log1p(-fraction)
    term = math.exp(log_ways + log_successes + log_failures)
    total = 0.0
    while count >= 0 and term > max(1e-17 * total, 1e-300):  # the smallest floats are too few to become smaller
        total += term
        term *= count * (1 - fraction) / ((number - count + 1) * fraction)
        count -= 1
    return total


def design_effect(loss: float | GilbertElliott) -> float:
    """The ratio of the variance of the loss count, over a long train, to that of independent losses.

    The correlation of a chain's state over k packets is x^k with x = 1 - p - r, and the share of the loss indicator's
    variance that the state explains is g = P(good) P(bad) (loss_bad - loss_good)^2 / (m (1 - m)), m the mean loss.
    Summing over all pairs of a long train gives 1 + 2 g x / (1 - x).
    """
    if not isinstance(loss, GilbertElliott):
        return 1.0
    mean = loss.mean_loss
    if mean in (0.0, 1.0):
        return 1.0
    memory = 1 - loss.p - loss.r
    bad = loss.bad_fraction
    difference = loss.loss_bad - loss.loss_good
    variance = mean * (1 - mean)
    share = bad * (1 - bad) * difference**2 / variance
    return 1 + 2 * share * memory / (1 - memory)
