"""Cross traffic in a simulation: the periods of `netem.media.cross_traffic`, each with its mean rate."""

from __future__ import annotations

from collections.abc import Iterator

from netem.media.cross_traffic import periods
from netem.media.profile import CrossTraffic


class Occupation:
    """Cross traffic that began at ``begun``.

    rate    bit/s at present
    until   when the rate changes next
    """

    def __init__(self, traffic: CrossTraffic, seed: int, begun: float) -> None:
        self.rate = 0.0
        self.until = begun
        self._begun = self._at = begun
        self._steps = _steps(traffic, seed)
        self.carry(begun, 0.0)

    def carry(self, now: float, most: float) -> float:
        """Advance to ``now``. Returns the bits since the last call, if at most ``most`` bit/s are carried."""
        bits = 0.0
        while self.until <= now:
            bits += min(self.rate, most) * (self.until - self._at)
            self._at = self.until
            self.rate, end = next(self._steps)
            self.until = self._begun + end
        bits += min(self.rate, most) * (now - self._at)
        self._at = now
        return bits


def _steps(traffic: CrossTraffic, seed: int) -> Iterator[tuple[float, float]]:
    """The rates in order, each with its end; a trace may begin later than the traffic."""
    last = 0.0
    for _, begin, end, rate in periods(traffic, seed, 0.0):
        if begin > last:
            yield 0.0, begin
        yield rate, end
        last = end
