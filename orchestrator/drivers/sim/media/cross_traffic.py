"""Cross traffic in a simulation: the periods of `netem.media.cross_traffic`, each with its mean rate."""

from __future__ import annotations

from collections.abc import Iterator

from netem.media.cross_traffic import periods
from netem.media.profile import CrossTraffic


class Occupation:
    """Cross traffic since ``start``.

    rate    bit/s at present
    until   when the rate changes next
    """

    def __init__(self, traffic: CrossTraffic, seed: int, start: float) -> None:
        self.rate = 0.0
        self.until = start
        self._start = start
        self._at = start
        self._steps = _steps(traffic, seed)
        self.carry(start, 0.0)

    def carry(self, now: float, most: float) -> float:
        """Advance to ``now``. Returns the bits since the last call, if at most ``most`` bit/s are carried."""
        bits = 0.0
        while self.until <= now:
            seconds = self.until - self._at
            bits += min(self.rate, most) * seconds
            self._at = self.until
            self.rate, end = next(self._steps)
            self.until = self._start + end
        seconds = now - self._at
        bits += min(self.rate, most) * seconds
        self._at = now
        return bits


def _steps(traffic: CrossTraffic, seed: int) -> Iterator[tuple[float, float]]:
    """The rates in order, each with its end; a trace may start later than the traffic."""
    last = 0.0
    for _, start, end, rate in periods(traffic, seed, 0.0):
        if start > last:
            yield 0.0, start
        yield rate, end
        last = end
