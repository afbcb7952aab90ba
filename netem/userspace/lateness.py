"""Statistics of lateness against due times."""

from __future__ import annotations


class Lateness:
    """Lateness in seconds: the maximum, and quantiles from a histogram of 10 µs steps up to 0.1 s."""

    STEP = 1e-5
    STEPS = 10_000

    def __init__(self) -> None:
        self.maximum = 0.0
        self._counts = [0] * (self.STEPS + 1)

    def add(self, seconds: float, number: int = 1) -> None:
        """Count ``number`` items that were late by ``seconds``."""
        step = int(seconds / self.STEP)
        self._counts[min(step, self.STEPS)] += number
        if seconds > self.maximum:
            self.maximum = seconds

    def above(self, seconds: float) -> int:
        """Number of items later than ``seconds`` (at most 0.1 s), with the resolution of a step."""
        step = round(seconds / self.STEP)
        first = min(step, self.STEPS)
        return sum(self._counts[first:])

    def quantile(self, fraction: float) -> float:
        """Upper edge of the step that contains the quantile, at most the maximum; 0.0 before the first item."""
        wanted = fraction * sum(self._counts)
        reached = 0
        for step, number in enumerate(self._counts):
            reached += number
            if number and reached >= wanted:
                if step == self.STEPS:
                    return self.maximum
                edge = (step + 1) * self.STEP
                return min(edge, self.maximum)
        return 0.0
