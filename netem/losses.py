"""Losses on a link that is in use: how many were asked for by now, and whether they are what was lost.

Nothing is sent for this: the link's own packets are the probes. A link's profile changes as a run goes on, so its
packets are counted by the profile under which each was lost or not (`AskedLosses`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from netem.intervals import binomial_range, design_effect
from netem.profile import GilbertElliott, LinkProfile

NEAR = 3.0  # standard deviations within which no count is looked at more closely


class AskedLosses:
    """The losses asked of a link: their number is random with a mean and a variance.

    Of n packets under a loss of p they are n p and n p (1 - p); of a Gilbert–Elliott chain the latter times its design
    effect (`netem.intervals.design_effect`).
    """

    __slots__ = ("_from", "_mean", "_profile", "_variance")

    def __init__(self, profile: LinkProfile) -> None:
        self._profile = profile
        self._from = 0  # packets before this profile
        self._mean = self._variance = 0.0

    def change(self, packets: int, profile: LinkProfile) -> None:
        """After so many packets in all, the link has another profile."""
        self._mean, self._variance = self.of(packets)
        self._from, self._profile = packets, profile

    def of(self, packets: int) -> tuple[float, float]:
        """Mean and variance of the losses among so many packets in all."""
        number, loss = packets - self._from, self._profile.mean_loss
        chain = self._profile.loss
        effect = design_effect(chain) if isinstance(chain, GilbertElliott) else 1.0
        return self._mean + number * loss, self._variance + number * loss * (1 - loss) * effect


class Losses(NamedTuple):
    """Of ``packets`` on a link, ``lost`` were lost and ``asked`` were to be lost, with this ``variance``.

    ``others_too``: among the lost may be packets that found a full buffer, so that too many say nothing.
    """

    packets: int
    lost: int
    asked: float
    variance: float
    others_too: bool = False

    def plus(self, other: Losses) -> Losses:
        """Both together."""
        return Losses(
            self.packets + other.packets,
            self.lost + other.lost,
            self.asked + other.asked,
            self.variance + other.variance,
            self.others_too or other.others_too,
        )

    def accepted(self, chance: float) -> tuple[int, int]:
        """The counts of lost packets outside which a link as asked comes by this chance at most.

        Exact for one loss; where it changed, the binomial distribution with the mean loss is the wider one (Hoeffding
        1956). Where losses scatter more than independent ones, the number of packets is divided by how much more.
        """
        if self.packets == 0 or self.asked <= 0:
            return 0, 0
        low, high = binomial_range(round(self.packets / self._effect), self.asked / self.packets, 1 - chance)
        return math.floor(low * self._effect), math.ceil(high * self._effect)

    def as_asked(self, chance: float) -> bool:
        """Whether the count is one of those."""
        if self.others_too and self.lost >= self.asked:
            return True
        if self.asked > 0 and abs(self.lost - self.asked) <= NEAR * math.sqrt(self.variance):
            return True
        low, high = self.accepted(chance)
        return low <= self.lost <= high

    def tells(self, chance: float) -> bool:
        """Whether a link without any loss would have been found out."""
        return self.asked <= 0 < self.packets or self.accepted(chance)[0] > 0

    @property
    def _effect(self) -> float:
        fraction = min(1.0, self.asked / self.packets)
        binomial = self.packets * fraction * (1 - fraction)
        return max(1.0, self.variance / binomial) if binomial else 1.0
