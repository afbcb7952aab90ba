"""Cross traffic in a simulation: a rate that changes in steps. Poisson traffic has its mean rate."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

from netem.media.profile import CrossTraffic


class Occupation:
    """Cross traffic that began at ``begun``. Its steps are computed when they are needed.

    rate    bit/s at present
    until   when the rate changes next
    """

    def __init__(self, traffic: CrossTraffic, seed: int, begun: float) -> None:
        self._begun = self._at = begun
        self._steps = _steps(traffic, Random(f"{seed} on-off"))
        self.rate, self.until = 0.0, begun
        self.carry(begun, math.inf)

    def carry(self, now: float, most: float) -> float:
        """Advance to ``now``. Returns the bits since the last call, if no more than ``most`` bit/s are carried."""
        bits = 0.0
        while self.until <= now:
            bits += min(self.rate, most) * (self.until - self._at)
            self._at = self.until
            self.rate, ends = next(self._steps)
            self.until = self._begun + ends
        bits += min(self.rate, most) * (now - self._at)
        self._at = now
        return bits


def _steps(traffic: CrossTraffic, random: Random) -> Iterator[tuple[float, float]]:
    """The rates in order, each with the time at which it ends, in seconds from the beginning."""
    if traffic.kind == "on-off":
        on, ends = random.random() < traffic.on / (traffic.on + traffic.off), 0.0
        while True:
            ends += random.expovariate(1 / (traffic.on if on else traffic.off))
            yield traffic.rate if on else 0.0, ends
            on = not on
    if traffic.kind == "trace":
        yield 0.0, traffic.rows[0][0]
        for (_, rate), (ends, _) in zip(traffic.rows, traffic.rows[1:], strict=False):
            yield rate, ends
        yield traffic.rows[-1][1], math.inf
    else:
        yield traffic.rate, math.inf
