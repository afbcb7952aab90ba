"""How well due times were kept."""

from __future__ import annotations


class Lateness:
    """By how much due times were missed: the maximum, and quantiles from a histogram of 10 µs steps up to 0.1 s."""

    STEP = 1e-5
    STEPS = 10_000

    def __init__(self) -> None:
        self.maximum = 0.0
        self._counts = [0] * (self.STEPS + 1)

    def add(self, seconds: float, number: int = 1) -> None:
        """So many things were so late."""
        self._counts[min(int(seconds / self.STEP), self.STEPS)] += number
        if seconds > self.maximum:
            self.maximum = seconds

    def above(self, seconds: float) -> int:
        """How many were later than this, at most 0.1 s; to the step."""
        return sum(self._counts[min(round(seconds / self.STEP), self.STEPS) :])

    def quantile(self, fraction: float) -> float:
        """Upper edge of the step in which the quantile lies; 0.0 before anything was sent, at most the maximum."""
        wanted = fraction * sum(self._counts)
        reached = 0
        for index, number in enumerate(self._counts):
            reached += number
            if number and reached >= wanted:
                return min((index + 1) * self.STEP, self.maximum) if index < self.STEPS else self.maximum
        return 0.0
