"""Losses on a link in use: the number configured so far, and whether the measured number agrees.

This sends nothing: the link's own packets are the probes. A link's profile may change during a run, so each packet
counts under the profile that decided its loss (`AskedLosses`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from netem.measurement.intervals import binomial_range, design_effect
from netem.profile import LinkProfile

NEAR = 3.0  # standard deviations within which a count is accepted without the exact test


class AskedLosses:
    """Mean and variance of the random number of losses configured for a link. For n packets under a loss of p: n p and
    n p (1 - p). For a Gilbert–Elliott chain the variance is multiplied by its design effect
    (`netem.measurement.intervals.design_effect`)."""

    def __init__(self, profile: LinkProfile) -> None:
        self._profile = profile
        self._from = 0  # number of packets before this profile
        self._mean = 0.0
        self._variance = 0.0

    def change(self, packets: int, profile: LinkProfile) -> None:
        """Change the link's profile after ``packets`` packets in total."""
        self._mean, self._variance = self.of(packets)
        self._from = packets
        self._profile = profile

    def of(self, packets: int) -> tuple[float, float]:
        """Mean and variance of the losses among ``packets`` packets in total."""
        number = packets - self._from
        loss = self._profile.mean_loss
        effect = design_effect(self._profile.loss)
        mean = self._mean + number * loss
        variance = self._variance + number * loss * (1 - loss) * effect
        return mean, variance


class Losses(NamedTuple):
    """The ``packets`` on a link, the ``lost`` ones, and the number ``asked`` to be lost with its ``variance``."""

    packets: int
    lost: int
    asked: float
    variance: float

    def plus(self, other: Losses) -> Losses:
        """The sum of both."""
        return Losses(
            self.packets + other.packets,
            self.lost + other.lost,
            self.asked + other.asked,
            self.variance + other.variance,
        )

    def accepted(self, chance: float) -> tuple[int, int]:
        """The range of loss counts that a correct link leaves with a probability of at most ``chance``.

        Exact for one loss setting. If it changed, the binomial distribution with the mean loss is the wider one
        (Hoeffding 1956). If losses vary more than independent ones, the number of packets is divided by the ratio of
        the variances.
        """
        if self.packets == 0:
            return 0, 0
        effect = self._effect
        independent = round(self.packets / effect)
        low, high = binomial_range(independent, self.asked / self.packets, 1 - chance)
        return math.floor(low * effect), math.ceil(high * effect)

    def as_asked(self, chance: float) -> bool:
        """Whether the number of lost packets is accepted."""
        difference = abs(self.lost - self.asked)
        if difference <= NEAR * math.sqrt(self.variance):
            return True
        low, high = self.accepted(chance)
        return low <= self.lost <= high

    def tells(self, chance: float) -> bool:
        """Whether the packets suffice for a verdict: no loss is configured, or they would reveal a lossless link."""
        if self.asked == 0:
            return self.packets > 0
        fewest, _ = self.accepted(chance)
        return fewest > 0

    @property
    def _effect(self) -> float:
        fraction = self.asked / self.packets
        binomial = self.packets * fraction * (1 - fraction)
        if not binomial:
            return 1.0
        return max(1.0, self.variance / binomial)
